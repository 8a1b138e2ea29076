package io.headrace.sink;

import java.io.ByteArrayOutputStream;
import java.nio.charset.StandardCharsets;
import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.Collection;
import java.util.Deque;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.ThreadLocalRandom;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.connect.errors.ConnectException;
import org.apache.kafka.connect.errors.RetriableException;
import org.apache.kafka.connect.sink.ErrantRecordReporter;
import org.apache.kafka.connect.sink.SinkRecord;
import org.apache.kafka.connect.sink.SinkTask;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * Writes what Connect delivers, in order, as bulk requests.
 *
 * <p>Connect delivers records by put(), commits offsets only of what put() returned for, and delivers the same records
 * again after a RetriableException, for ever, while the consumer stays in its group. So
 * <ol>
 *   <li>put() returns when every record is <i>settled</i>: the index has it, or something newer, or it is bad. Hence
 *       Connect's own offsets are right, and preCommit() is left as it is;
 *   <li>put() does not wait for long: it throws, remembers what is settled and which request is out, and goes on from
 *       there at the next delivery. So a task that is told to stop does so at once, whatever the index does;
 *   <li>bad records are reported last of all, as put() returns: a task that is stopped while it waits for the index has
 *       reported none, and the next one does not report them a second time;
 *   <li>a record that is sent twice, as its answer was lost, changes nothing: its version is there (see Action).
 * </ol>
 * Several records of one id keep their order: within a bulk the index works in order, and there is one bulk at a time.
 * Where an earlier one is repeated alone, its version loses against the later one.
 */
public final class OpenSearchSinkTask extends SinkTask {
    private static final Logger LOG = LoggerFactory.getLogger(OpenSearchSinkTask.class);
    // Connect gives tasks 5 s to stop (task.shutdown.graceful.timeout.ms); put() is through well before.
    private static final long PATIENCE_MS = 3_000;
    private static final long REPORT_EVERY_NS = TimeUnit.MINUTES.toNanos(1);

    /** A record's place. A record that is delivered again is the same place, if not the same object. */
    private record Place(TopicPartition partition, long offset) {
        static Place of(SinkRecord record) {
            return new Place(new TopicPartition(record.topic(), record.kafkaPartition()), record.kafkaOffset());
        }
    }

    private record Bulk(List<Action> actions, byte[] lines) { }

    private record Sent(Bulk bulk, CompletableFuture<BulkClient.Answer> answer) { }

    /** Connect logs each of these, once a repeat: without forty lines of where it was thrown. */
    private static final class Again extends RetriableException {
        private static final long serialVersionUID = 1L;

        Again(String message) {
            super(message);
        }

        @Override
        public synchronized Throwable fillInStackTrace() {
            return this;
        }
    }

    private final TaskCounters counters = new TaskCounters();
    private final long patienceMs;
    private SinkSettings settings;
    private String taskName;
    private BulkClient client;
    private ErrantRecordReporter reporter; // null: nowhere to report to
    private final Set<Place> settled = new HashSet<>(); // of the delivery that is not through yet
    private final Map<Place, String> bad = new HashMap<>(); // of those settled: what is wrong with them
    private Sent sent; // the request that is out
    private int recordsMax;
    private int bytesMax;
    private long deadlineNs; // of the put() that runs
    private int failures; // in a row
    private long failingSinceNs;
    private long toldNs;

    /** Connect makes tasks by this one. */
    public OpenSearchSinkTask() {
        this(PATIENCE_MS);
    }

    /** One whose put() waits no longer than that for answers. */
    OpenSearchSinkTask(long patienceMs) {
        this.patienceMs = patienceMs;
    }

    @Override
    public String version() {
        return OpenSearchSink.version(OpenSearchSinkTask.class);
    }

    @Override
    public void start(Map<String, String> given) {
        settings = new SinkSettings(given);
        taskName = settings.taskName();
        client = new BulkClient(settings);
        reporter = context.errantRecordReporter();
        recordsMax = settings.getInt(SinkSettings.BATCH_RECORDS);
        bytesMax = settings.getInt(SinkSettings.BATCH_BYTES);
        counters.register(taskName);
        LOG.info("{}: writes to {}", taskName, client.target());
    }

    @Override
    public void put(Collection<SinkRecord> records) {
        deadlineNs = System.nanoTime() + TimeUnit.MILLISECONDS.toNanos(patienceMs);
        Set<Place> delivered = new HashSet<>();
        records.forEach(record -> delivered.add(Place.of(record)));
        if (sent != null) {
            finish(delivered);
        }
        Deque<SinkRecord> rest = new ArrayDeque<>(records);
        rest.removeIf(record -> settled.contains(Place.of(record)));
        while (!rest.isEmpty()) {
            Bulk bulk = nextBulk(rest);
            if (!bulk.actions().isEmpty()) {
                sent = new Sent(bulk, client.send(bulk.lines()));
                finish(delivered);
            }
            rest.removeIf(record -> settled.contains(Place.of(record)));
        }
        report(records);
        settled.clear();
        bad.clear();
        recordsMax = settings.getInt(SinkSettings.BATCH_RECORDS);
    }

    @Override
    public void close(Collection<TopicPartition> partitions) {
        // Another task may have them now and begins at the committed offsets; what it repeats changes nothing.
        abandon();
        settled.removeIf(place -> partitions.contains(place.partition()));
        bad.keySet().removeIf(place -> partitions.contains(place.partition()));
    }

    @Override
    public void stop() {
        abandon();
        settled.clear();
        counters.unregister();
        LOG.info("{}: stopped after {}", taskName, counters);
    }

    /** The next bulk from the head of the rest, within the bounds. Bad records in it are settled, and not sent. */
    private Bulk nextBulk(Deque<SinkRecord> rest) {
        List<Action> actions = new ArrayList<>();
        ByteArrayOutputStream lines = new ByteArrayOutputStream(Math.min(bytesMax, 1 << 20));
        String header = settings.getString(SinkSettings.VERSION_HEADER);
        int documentBytesMax = settings.getInt(SinkSettings.DOCUMENT_BYTES_MAX);
        for (SinkRecord record : rest) {
            if (actions.size() == recordsMax) {
                break;
            }
            try {
                Action action = Action.of(record, header, documentBytesMax);
                if (!actions.isEmpty() && lines.size() + action.lines().length > bytesMax) {
                    break;
                }
                actions.add(action);
                lines.writeBytes(action.lines());
            } catch (BadRecord e) {
                refuse(record, e.getMessage());
            }
        }
        return new Bulk(actions, lines.toByteArray());
    }

    /** Waits for the request that is out and settles what its answer settles. RetriableException for the rest. */
    private void finish(Set<Place> delivered) {
        BulkClient.Answer answer;
        try {
            answer = sent.answer().get(Math.max(1, deadlineNs - System.nanoTime()), TimeUnit.NANOSECONDS);
        } catch (TimeoutException e) {
            context.timeout(1);
            throw new Again(taskName + ": the answer of " + client.target() + " is still awaited");
        } catch (ExecutionException e) {
            sent = null;
            throw again("no answer: " + e.getCause());
        } catch (InterruptedException e) {
            abandon();
            Thread.currentThread().interrupt();
            throw new ConnectException(taskName + ": interrupted", e);
        }
        Bulk bulk = sent.bulk();
        sent = null;
        if (answer.status() == 200) {
            settle(bulk, answer, delivered);
        } else {
            refused(bulk, answer, delivered);
        }
    }

    private void settle(Bulk bulk, BulkClient.Answer answer, Set<Place> delivered) {
        List<Verdict> verdicts;
        try {
            verdicts = Verdict.read(answer.body(), bulk.actions());
        } catch (BadRecord e) {
            throw again(e.getMessage() + ": " + answer.text());
        }
        client.worked();
        counters.requests.incrementAndGet();
        counters.bytes.addAndGet(bulk.lines().length);
        String waiting = null;
        for (int i = 0; i < verdicts.size(); i++) {
            Action action = bulk.actions().get(i);
            Verdict verdict = verdicts.get(i);
            if (verdict.kind() == Verdict.Kind.AGAIN) {
                waiting = waiting == null ? verdict.reason() : waiting;
            } else if (delivered.contains(Place.of(action.record()))) {
                settle(action, verdict);
            }
        }
        if (waiting != null) {
            throw again(waiting);
        }
        if (failures > 0) {
            LOG.info("{}: {} takes records again, after {} failures in {} s", taskName, client.target(), failures,
                    TimeUnit.NANOSECONDS.toSeconds(System.nanoTime() - failingSinceNs));
            failures = 0;
        }
    }

    private void settle(Action action, Verdict verdict) {
        if (verdict.kind() == Verdict.Kind.BAD) {
            refuse(action.record(), verdict.reason());
            return;
        }
        settled.add(Place.of(action.record()));
        if (verdict.kind() == Verdict.Kind.STALE) {
            counters.stale.incrementAndGet();
        } else {
            (action.delete() ? counters.deletes : counters.upserts).incrementAndGet();
        }
    }

    /** The request as a whole was not carried out: find the one record at fault, wait, or stop for good. */
    private void refused(Bulk bulk, BulkClient.Answer answer, Set<Place> delivered) {
        int status = answer.status();
        int count = bulk.actions().size();
        if (status == 413 && count > 1) {
            bytesMax = Math.max(1, bulk.lines().length / 2); // for good: what stands before the index will not grow
            LOG.warn("{}: {} refuses a bulk of {} bytes as too large; sends {} at most from now on", taskName,
                    client.target(), bulk.lines().length, bytesMax);
        } else if (status == 400 && count > 1 && isOpenSearch(answer)) {
            recordsMax = (count + 1) / 2; // of this delivery, until the record that spoils the bulk is alone
        } else if (status == 413 || status == 400 && isOpenSearch(answer)) {
            Action only = bulk.actions().get(0);
            if (delivered.contains(Place.of(only.record()))) {
                refuse(only.record(), "the index answered " + status + ": " + answer.text());
            }
        } else if (status == 404 || status == 408 || status == 429 || status >= 500) {
            throw again(status == 404 ? "there is no such index; make it with its mapping (headrace provision)"
                    : "answered " + status + ": " + answer.text());
        } else {
            throw new ConnectException(taskName + ": needed " + client.target() + " to take a bulk request, got "
                    + status + (status == 401 || status == 403 ? "; correct " + SinkSettings.USERNAME + ", "
                    + SinkSettings.PASSWORD + " or the user's rights" : "; correct " + SinkSettings.URL)
                    + " and restart the task: " + answer.text());
        }
    }

    /** OpenSearch says what is wrong as {"error": {"type": ...}}; a proxy's page is no word on a record. */
    private static boolean isOpenSearch(BulkClient.Answer answer) {
        try {
            Object page = Json.parse(new String(answer.body(), StandardCharsets.UTF_8));
            return page instanceof Map<?, ?> map && map.get("error") instanceof Map<?, ?> error
                    && error.get("type") != null;
        } catch (BadRecord e) {
            return false;
        }
    }

    private void refuse(SinkRecord record, String reason) {
        settled.add(Place.of(record));
        bad.put(Place.of(record), reason);
    }

    /** Reports the bad records, in order, where there is a place for it; else it is as errors.tolerance says. */
    private void report(Collection<SinkRecord> records) {
        for (SinkRecord record : records) {
            String reason = bad.remove(Place.of(record));
            if (reason == null) {
                continue;
            }
            String message = taskName + ": record " + record.topic() + "-" + record.kafkaPartition() + "@"
                    + record.kafkaOffset() + ": " + reason;
            if (reporter != null) {
                LOG.debug("{}; goes to the dead letters", message);
                reporter.report(record, new ConnectException(message)); // throws when errors.tolerance is none
            } else if (settings.toleratesBadRecords()) {
                LOG.warn("{}; passed over, as errors.tolerance is all and no dead letter queue is set", message);
            } else {
                throw new ConnectException(message + "; mend it, or set errors.tolerance=all and a dead letter queue");
            }
            counters.bad.incrementAndGet();
        }
    }

    /** After a failure that may pass: how long to wait is said to Connect; full jitter, so that tasks come apart. */
    private RetriableException again(String reason) {
        client.failed();
        counters.retries.incrementAndGet();
        long now = System.nanoTime();
        failingSinceNs = failures == 0 ? now : failingSinceNs;
        long longest = settings.getLong(SinkSettings.BACKOFF_MS_MAX);
        long ceiling = Math.min(longest, settings.getLong(SinkSettings.BACKOFF_MS) << Math.min(failures, 20));
        long pause = 1 + ThreadLocalRandom.current().nextLong(Math.max(1, ceiling));
        if (failures == 0 || now - toldNs > REPORT_EVERY_NS) {
            LOG.warn("{}: needed {} to take records, got {}; repeats until it does", taskName, client.target(), reason);
            toldNs = now;
        }
        failures++;
        context.timeout(pause);
        return new Again(taskName + ": " + client.target() + ": " + reason);
    }

    private void abandon() {
        if (sent != null) {
            sent.answer().cancel(true);
            sent = null;
        }
    }
}
