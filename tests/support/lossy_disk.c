/* A disk that forgets what was never synced, and that fills up: preloaded into a process, below one folder.

   It keeps, beside the folder, what a disk would hold if the power failed now, by the strict reading of POSIX:
   a file's bytes and length as of its last fsync or fdatasync, a folder's names as of that folder's last fsync.
   A name that was created, renamed or removed is not durable before its folder is synced, whatever the file's own
   sync did. tests/support/lossy_disk.py makes a folder of it again.

   Environment, read when the process starts; the first process takes the shadow folder, its children stay passive:
     LOSSY_ROOT        the folder that is watched (absolute, without links), its own name taken for durable
     LOSSY_SHADOW      where the durable image is kept: f<N> bytes of file N, d<N> names of folder N, the root is d1
     LOSSY_CUT_AT      before the Nth change or sync below the root, the process is killed: the power cut
     LOSSY_ROOM_BYTES  so many bytes can be written below the root, then ENOSPC
   Changes are counted and made under one lock, so the image is one that some real disk could hold. */

#define _GNU_SOURCE
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#define FDS_MAX 65536
#define NODES_MAX 200000

struct node {
    ino_t ino;
    long id;        /* never used twice, as inode numbers are */
    int is_dir;
    off_t from, to; /* bytes changed since the last sync; empty when from >= to */
};

static struct node nodes[NODES_MAX];
static int nodes_count;
static int node_of_fd[FDS_MAX]; /* index + 1 */
static char append_of_fd[FDS_MAX];
static long last_id;
static long changes, cut_at = -1;
static long long room = -1;
static char root[PATH_MAX], shadow[PATH_MAX];
static int active;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static void die(const char *what) {
    dprintf(2, "lossy_disk: %s: %s\n", what, strerror(errno));
    _exit(99);
}

/* --- the durable image ------------------------------------------------------------------------------------------- */

static void copy_range(int from_fd, int to_fd, off_t from, off_t to) {
    static char buffer[1 << 16];
    while (from < to) {
        size_t want = (size_t)(to - from) < sizeof buffer ? (size_t)(to - from) : sizeof buffer;
        ssize_t got = syscall(SYS_pread64, from_fd, buffer, want, from);
        if (got < 0) die("read back");
        if (got == 0) break;
        for (ssize_t done = 0; done < got;) {
            ssize_t put = syscall(SYS_pwrite64, to_fd, buffer + done, (size_t)(got - done), from + done);
            if (put <= 0) die("write the shadow");
            done += put;
        }
        from += got;
    }
}

static void keep_file(int fd, struct node *node) {
    char path[PATH_MAX + 32];
    struct stat facts;
    if (fstat(fd, &facts) != 0) die("fstat");
    snprintf(path, sizeof path, "%s/f%ld", shadow, node->id);
    int to = (int)syscall(SYS_openat, AT_FDCWD, path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    int from = fd;
    char self[64];
    snprintf(self, sizeof self, "/proc/self/fd/%d", fd);
    if ((fcntl(fd, F_GETFL) & O_ACCMODE) == O_WRONLY)
        from = (int)syscall(SYS_openat, AT_FDCWD, self, O_RDONLY | O_CLOEXEC);
    if (to < 0 || from < 0) die("open the shadow");
    off_t end = node->to < facts.st_size ? node->to : facts.st_size;
    copy_range(from, to, node->from, end);
    if (syscall(SYS_ftruncate, to, facts.st_size) != 0) die("cut the shadow");
    if (from != fd) syscall(SYS_close, from);
    syscall(SYS_close, to);
    node->from = LLONG_MAX;
    node->to = 0;
}

static struct node *node_for(const struct stat *facts, int is_new) {
    struct node *node = NULL;
    for (int i = nodes_count - 1; i >= 0 && node == NULL; i--)
        if (nodes[i].ino == facts->st_ino) node = &nodes[i];
    if (node == NULL) {
        if (nodes_count == NODES_MAX) die("too many files");
        node = &nodes[nodes_count++];
        is_new = 1;
    }
    if (is_new) *node = (struct node){facts->st_ino, ++last_id, S_ISDIR(facts->st_mode), LLONG_MAX, 0};
    return node;
}

static void keep_dir(const char *path, struct node *node, int all_below) {
    char part[PATH_MAX + 32], whole[PATH_MAX + 32], below[PATH_MAX + 300];
    snprintf(part, sizeof part, "%s/part", shadow);
    snprintf(whole, sizeof whole, "%s/d%ld", shadow, node->id);
    DIR *dir = opendir(path);
    FILE *out = fopen(part, "we");
    if (dir == NULL || out == NULL) die("list a folder");
    for (struct dirent *entry; (entry = readdir(dir)) != NULL;) {
        struct stat facts;
        if (!strcmp(entry->d_name, ".") || !strcmp(entry->d_name, "..")) continue;
        snprintf(below, sizeof below, "%s/%s", path, entry->d_name);
        if (lstat(below, &facts) != 0) continue;
        struct node *child = node_for(&facts, 0);
        fprintf(out, "%c %ld %s\n", child->is_dir ? 'd' : 'f', child->id, entry->d_name);
    }
    closedir(dir);
    fclose(out);
    if (syscall(SYS_rename, part, whole) != 0) die("rename the shadow");
    if (!all_below) return;
    dir = opendir(path);
    for (struct dirent *entry; (entry = readdir(dir)) != NULL;) {
        struct stat facts;
        if (!strcmp(entry->d_name, ".") || !strcmp(entry->d_name, "..")) continue;
        snprintf(below, sizeof below, "%s/%s", path, entry->d_name);
        if (lstat(below, &facts) != 0) continue;
        struct node *child = node_for(&facts, 0);
        if (child->is_dir) {
            keep_dir(below, child, 1);
        } else {
            int fd = (int)syscall(SYS_openat, AT_FDCWD, below, O_RDONLY | O_CLOEXEC);
            if (fd < 0) die("open a file of the start");
            child->from = 0;
            child->to = facts.st_size;
            keep_file(fd, child);
            syscall(SYS_close, fd);
        }
    }
    closedir(dir);
}

__attribute__((constructor)) static void begin(void) {
    const char *given_root = getenv("LOSSY_ROOT"), *given_shadow = getenv("LOSSY_SHADOW");
    const char *cut = getenv("LOSSY_CUT_AT"), *bytes = getenv("LOSSY_ROOM_BYTES");
    char owner[PATH_MAX + 32];
    struct stat facts;
    if (given_root == NULL || given_shadow == NULL) return;
    snprintf(root, sizeof root, "%s", given_root);
    snprintf(shadow, sizeof shadow, "%s", given_shadow);
    snprintf(owner, sizeof owner, "%s/owner", shadow);
    int fd = (int)syscall(SYS_openat, AT_FDCWD, owner, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (fd < 0) return; /* another process has it */
    syscall(SYS_close, fd);
    if (cut != NULL) cut_at = atol(cut);
    if (bytes != NULL) room = atoll(bytes);
    if (stat(root, &facts) != 0) die(root);
    keep_dir(root, node_for(&facts, 1), 1);
    active = 1;
}

/* How many changes there were, for who wants to cut somewhere among them. */
__attribute__((destructor)) static void finish(void) {
    char path[PATH_MAX + 32], text[32];
    if (!active) return;
    snprintf(path, sizeof path, "%s/changes", shadow);
    int fd = (int)syscall(SYS_openat, AT_FDCWD, path, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
    int length = snprintf(text, sizeof text, "%ld\n", changes);
    if (fd < 0 || syscall(SYS_write, fd, text, length) != length) die("write the number of changes");
    syscall(SYS_close, fd);
}

/* --- which calls matter ------------------------------------------------------------------------------------------ */

static int below_root(const char *path) {
    char whole[PATH_MAX];
    if (!active || path == NULL) return 0;
    if (path[0] != '/') {
        if (getcwd(whole, sizeof whole) == NULL) return 0;
        size_t used = strlen(whole);
        snprintf(whole + used, sizeof whole - used, "/%s", path);
        path = whole;
    }
    size_t length = strlen(root);
    return strncmp(path, root, length) == 0 && (path[length] == '/' || path[length] == 0);
}

static int watched(int fd) { return active && fd >= 0 && fd < FDS_MAX && node_of_fd[fd] != 0; }

/* With the lock held, before the change. */
static void count_change(void) {
    changes++;
    if (cut_at >= 0 && changes >= cut_at) {
        syscall(SYS_kill, getpid(), SIGKILL);
        for (;;) pause();
    }
}

#define REAL(result, name, ...)                                                          \
    static result (*real)(__VA_ARGS__);                                                  \
    if (real == NULL) real = (result(*)(__VA_ARGS__))dlsym(RTLD_NEXT, #name)

static int opened(int fd, int existed, int flags) {
    struct stat facts;
    if (fd < 0) return fd;
    if (fd >= FDS_MAX || fstat(fd, &facts) != 0) die("a file descriptor");
    if (!S_ISREG(facts.st_mode) && !S_ISDIR(facts.st_mode)) return fd;
    struct node *node = node_for(&facts, !existed);
    if (flags & O_TRUNC) node->from = 0;
    node_of_fd[fd] = (int)(node - nodes) + 1;
    append_of_fd[fd] = (flags & O_APPEND) != 0;
    return fd;
}

#define OPEN_BODY(real_call, path_is_below, path)                                        \
    mode_t mode = 0;                                                                     \
    if (flags & (O_CREAT | O_TMPFILE)) {                                                 \
        va_list more;                                                                    \
        va_start(more, flags);                                                           \
        mode = va_arg(more, mode_t);                                                     \
        va_end(more);                                                                    \
    }                                                                                    \
    if (!(path_is_below)) {                                                              \
        int other = real_call;                                                           \
        if (other >= 0 && other < FDS_MAX) node_of_fd[other] = 0;                        \
        return other;                                                                    \
    }                                                                                    \
    struct stat before;                                                                  \
    pthread_mutex_lock(&lock);                                                           \
    int existed = lstat(path, &before) == 0;                                             \
    if (!existed && (flags & O_CREAT)) count_change();                                   \
    int fd = real_call;                                                                  \
    int saved = errno;                                                                   \
    opened(fd, existed, flags);                                                          \
    pthread_mutex_unlock(&lock);                                                         \
    errno = saved;                                                                       \
    return fd

int open(const char *path, int flags, ...) {
    REAL(int, open, const char *, int, ...);
    OPEN_BODY(real(path, flags, mode), below_root(path), path);
}

int open64(const char *path, int flags, ...) {
    REAL(int, open64, const char *, int, ...);
    OPEN_BODY(real(path, flags, mode), below_root(path), path);
}

int openat(int dir, const char *path, int flags, ...) {
    REAL(int, openat, int, const char *, int, ...);
    OPEN_BODY(real(dir, path, flags, mode), (dir == AT_FDCWD || path[0] == '/') && below_root(path), path);
}

int openat64(int dir, const char *path, int flags, ...) {
    REAL(int, openat64, int, const char *, int, ...);
    OPEN_BODY(real(dir, path, flags, mode), (dir == AT_FDCWD || path[0] == '/') && below_root(path), path);
}

/* A stream's writes are not seen: its file is never durable. Only that it is a new file must be known. */
static FILE *stream_opened(FILE *stream, const char *path, int existed) {
    struct stat facts;
    if (stream != NULL && !existed && below_root(path) && fstat(fileno(stream), &facts) == 0) {
        pthread_mutex_lock(&lock);
        node_for(&facts, 1);
        pthread_mutex_unlock(&lock);
    }
    return stream;
}

FILE *fopen(const char *path, const char *mode) {
    REAL(FILE *, fopen, const char *, const char *);
    struct stat before;
    int existed = lstat(path, &before) == 0;
    return stream_opened(real(path, mode), path, existed);
}

FILE *fopen64(const char *path, const char *mode) {
    REAL(FILE *, fopen64, const char *, const char *);
    struct stat before;
    int existed = lstat(path, &before) == 0;
    return stream_opened(real(path, mode), path, existed);
}

int close(int fd) {
    REAL(int, close, int);
    if (watched(fd)) node_of_fd[fd] = 0;
    return real(fd);
}

/* A stream over a descriptor closes it within the C library, where the call above is not seen. */
int fclose(FILE *stream) {
    REAL(int, fclose, FILE *);
    int fd = fileno(stream);
    if (watched(fd)) node_of_fd[fd] = 0;
    return real(stream);
}

/* --- bytes ------------------------------------------------------------------------------------------------------- */

static void touch(int fd, off_t from, off_t to) {
    struct node *node = &nodes[node_of_fd[fd] - 1];
    if (from < node->from) node->from = from;
    if (to > node->to) node->to = to;
}

/* How much of a write there is room for; 0 with errno set for none. */
static size_t fitting(size_t wanted) {
    if (room < 0 || (long long)wanted <= room) return wanted;
    if (room == 0) errno = ENOSPC;
    return (size_t)room;
}

static ssize_t written(int fd, ssize_t done, off_t at) {
    if (done > 0) {
        touch(fd, at, at + done);
        if (room > 0) room = room > done ? room - done : 0;
    }
    return done;
}

ssize_t write(int fd, const void *data, size_t size) {
    REAL(ssize_t, write, int, const void *, size_t);
    if (!watched(fd)) return real(fd, data, size);
    pthread_mutex_lock(&lock);
    count_change();
    size_t fits = fitting(size);
    ssize_t done = fits == 0 && size > 0 ? -1 : real(fd, data, fits);
    if (done > 0) written(fd, done, lseek(fd, 0, SEEK_CUR) - done);
    pthread_mutex_unlock(&lock);
    return done;
}

ssize_t writev(int fd, const struct iovec *parts, int count) {
    REAL(ssize_t, writev, int, const struct iovec *, int);
    if (!watched(fd)) return real(fd, parts, count);
    ssize_t total = 0;
    for (int i = 0; i < count; i++) {
        ssize_t done = write(fd, parts[i].iov_base, parts[i].iov_len);
        if (done < 0) return total > 0 ? total : -1;
        total += done;
        if ((size_t)done < parts[i].iov_len) break;
    }
    return total;
}

#define PWRITE_BODY                                                                      \
    if (!watched(fd)) return real(fd, data, size, at);                                   \
    pthread_mutex_lock(&lock);                                                           \
    count_change();                                                                      \
    size_t fits = fitting(size);                                                         \
    if (append_of_fd[fd]) at = lseek(fd, 0, SEEK_END);                                   \
    ssize_t done = fits == 0 && size > 0 ? -1 : real(fd, data, fits, at);                \
    written(fd, done, at);                                                               \
    pthread_mutex_unlock(&lock);                                                         \
    return done

ssize_t pwrite(int fd, const void *data, size_t size, off_t at) {
    REAL(ssize_t, pwrite, int, const void *, size_t, off_t);
    PWRITE_BODY;
}

ssize_t pwrite64(int fd, const void *data, size_t size, off_t at) {
    REAL(ssize_t, pwrite64, int, const void *, size_t, off_t);
    PWRITE_BODY;
}

#define FTRUNCATE_BODY                                                                   \
    if (!watched(fd)) return real(fd, length);                                           \
    struct stat facts;                                                                   \
    pthread_mutex_lock(&lock);                                                           \
    count_change();                                                                      \
    fstat(fd, &facts);                                                                   \
    int result = real(fd, length);                                                       \
    touch(fd, length < facts.st_size ? length : facts.st_size, length);                  \
    pthread_mutex_unlock(&lock);                                                         \
    return result

int ftruncate(int fd, off_t length) {
    REAL(int, ftruncate, int, off_t);
    FTRUNCATE_BODY;
}

int ftruncate64(int fd, off_t length) {
    REAL(int, ftruncate64, int, off_t);
    FTRUNCATE_BODY;
}

/* Space set aside is no promise of bytes: the file keeps its length, which no reader here minds. */
int fallocate(int fd, int mode, off_t at, off_t length) {
    REAL(int, fallocate, int, int, off_t, off_t);
    if (!watched(fd)) return real(fd, mode, at, length);
    return room == 0 ? (errno = ENOSPC, -1) : 0;
}

int fallocate64(int fd, int mode, off_t at, off_t length) { return fallocate(fd, mode, at, length); }

static int synced(int fd) {
    struct node *node = &nodes[node_of_fd[fd] - 1];
    char self[64], path[PATH_MAX];
    pthread_mutex_lock(&lock);
    count_change();
    if (!node->is_dir) {
        keep_file(fd, node);
    } else {
        snprintf(self, sizeof self, "/proc/self/fd/%d", fd);
        ssize_t length = readlink(self, path, sizeof path - 1);
        if (length < 0) die("a folder's name");
        path[length] = 0;
        keep_dir(path, node, 0);
    }
    pthread_mutex_unlock(&lock);
    return 0;
}

int fsync(int fd) {
    REAL(int, fsync, int);
    return watched(fd) ? synced(fd) : real(fd);
}

int fdatasync(int fd) {
    REAL(int, fdatasync, int);
    return watched(fd) ? synced(fd) : real(fd);
}

/* Only starts the writing out: it promises nothing. */
int sync_file_range(int fd, off_t at, off_t length, unsigned int flags) {
    REAL(int, sync_file_range, int, off_t, off_t, unsigned int);
    return watched(fd) ? 0 : real(fd, at, length, flags);
}

/* --- names ------------------------------------------------------------------------------------------------------- */

#define NAME_CHANGE(below, call)                                                         \
    if (!(below)) return call;                                                           \
    pthread_mutex_lock(&lock);                                                           \
    count_change();                                                                      \
    int result = call;                                                                   \
    int saved = errno;                                                                   \
    pthread_mutex_unlock(&lock);                                                         \
    errno = saved;                                                                       \
    return result

int rename(const char *old, const char *new) {
    REAL(int, rename, const char *, const char *);
    NAME_CHANGE(below_root(new), real(old, new));
}

int unlink(const char *path) {
    REAL(int, unlink, const char *);
    NAME_CHANGE(below_root(path), real(path));
}

int rmdir(const char *path) {
    REAL(int, rmdir, const char *);
    NAME_CHANGE(below_root(path), real(path));
}

int mkdir(const char *path, mode_t mode) {
    REAL(int, mkdir, const char *, mode_t);
    if (!below_root(path)) return real(path, mode);
    struct stat facts;
    pthread_mutex_lock(&lock);
    count_change();
    int result = real(path, mode);
    int saved = errno;
    if (result == 0 && stat(path, &facts) == 0) node_for(&facts, 1);
    pthread_mutex_unlock(&lock);
    errno = saved;
    return result;
}
