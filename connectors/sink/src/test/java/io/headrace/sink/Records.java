package io.headrace.sink;

import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.Future;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.metrics.PluginMetrics;
import org.apache.kafka.common.record.TimestampType;
import org.apache.kafka.connect.header.ConnectHeaders;
import org.apache.kafka.connect.sink.ErrantRecordReporter;
import org.apache.kafka.connect.sink.SinkRecord;
import org.apache.kafka.connect.sink.SinkTaskContext;

/** Records as a topic holds them, and the side of Connect that a task sees. */
final class Records {
    private long offset;

    /** The next record of partition 0; version null: without a header. */
    SinkRecord next(Object key, Object version, Object value) {
        ConnectHeaders headers = new ConnectHeaders();
        if (version != null) {
            headers.add("doc_version", version, null);
        }
        return new SinkRecord("index-events", 0, null, key, null, value, offset++, 0L, TimestampType.CREATE_TIME,
                headers);
    }

    /** A document with this text, as bytes. */
    static byte[] document(String text) {
        return ("{\"text\":\"" + text + "\"}").getBytes(StandardCharsets.UTF_8);
    }

    /** What a task is given; it remembers the pauses asked for and the records reported. */
    static final class Context implements SinkTaskContext {
        final List<Long> pauses = new ArrayList<>();
        final List<Object> reported = new ArrayList<>();
        final List<String> reasons = new ArrayList<>();
        boolean reports = true;
        RuntimeException refusal; // thrown by the reporter, as Connect does when errors.tolerance is none

        @Override
        public ErrantRecordReporter errantRecordReporter() {
            return reports ? this::report : null;
        }

        private Future<Void> report(SinkRecord record, Throwable error) {
            if (refusal != null) {
                throw refusal;
            }
            reported.add(record.kafkaOffset());
            reasons.add(error.getMessage());
            return CompletableFuture.completedFuture(null);
        }

        @Override
        public void timeout(long pauseMs) {
            pauses.add(pauseMs);
        }

        @Override
        public Map<String, String> configs() {
            return Map.of();
        }

        @Override
        public void offset(Map<TopicPartition, Long> offsets) {
            throw new UnsupportedOperationException("a task leaves offsets to Connect");
        }

        @Override
        public void offset(TopicPartition partition, long offset) {
            throw new UnsupportedOperationException("a task leaves offsets to Connect");
        }

        @Override
        public Set<TopicPartition> assignment() {
            return Set.of(new TopicPartition("index-events", 0));
        }

        @Override
        public void pause(TopicPartition... partitions) {
            throw new UnsupportedOperationException("Connect pauses by itself while it delivers again");
        }

        @Override
        public void resume(TopicPartition... partitions) {
            throw new UnsupportedOperationException("Connect resumes by itself");
        }

        @Override
        public PluginMetrics pluginMetrics() {
            throw new UnsupportedOperationException("older Connect has none, so a task uses none");
        }

        @Override
        public void requestCommit() {
            throw new UnsupportedOperationException("Connect commits by its own clock");
        }
    }
}
