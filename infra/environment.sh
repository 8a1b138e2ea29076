# Sourced by the launchers beside it. `headrace_environment run|fleet|dev` leaves the environment's interpreter in $python.
# $root is the checkout. POSIX sh; one `cmp` and no Python when the environment stands.

headrace_find_python() {
    for candidate in ${HEADRACE_PYTHON:+"$HEADRACE_PYTHON"} python3 python3.14 python3.13 python3.12 python3.11; do
        if "$candidate" -c 'import sys; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1; then
            printf '%s\n' "$candidate"
            return 0
        fi
    done
    echo "headrace: needs Python 3.11 or newer, found none of: ${HEADRACE_PYTHON:-} python3 python3.11 to 3.14;" \
        "install one (Debian 12, Ubuntu 24.04 or newer: apt-get install python3 python3-venv)" \
        "or name it with HEADRACE_PYTHON=/path/to/python3" >&2
    return 1
}

headrace_environment() {
    folder=${HEADRACE_VENV:-$root/.venv}
    case $folder in /*) ;; *) folder=$PWD/$folder ;; esac
    python=$folder/bin/python
    if ! [ -x "$python" ] || ! cmp -s "$root/infra/lock/$1.txt" "$folder/.headrace/$1.txt"; then
        maker=$(headrace_find_python) || return 1
        "$maker" "$root/infra/bootstrap.py" "$1" </dev/null || return 1
    fi
    # The checkout alone is put on the path; a folder "streams" where the user happens to stand must not win.
    export PYTHONPATH="$root" PYTHONSAFEPATH=1
}
