package io.headrace.sink;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.IOException;
import java.lang.management.ManagementFactory;
import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import javax.management.ObjectName;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.connect.errors.ConnectException;
import org.apache.kafka.connect.errors.RetriableException;
import org.apache.kafka.connect.sink.SinkRecord;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.DisplayName;
import org.junit.jupiter.api.Test;

class OpenSearchSinkTaskTest {
    private static final int DELIVERIES_MAX = 50;

    private final Records records = new Records();
    private final Records.Context context = new Records.Context();
    private FakeIndex index;
    private OpenSearchSinkTask task;

    @BeforeEach
    void begin() throws IOException {
        index = new FakeIndex();
    }

    @AfterEach
    void end() {
        if (task != null) {
            task.stop();
        }
        index.close();
    }

    private void start(String... settings) {
        start(20_000, settings);
    }

    private void start(long patienceMs, String... settings) {
        Map<String, String> given = new HashMap<>();
        given.putAll(Map.of("name", "test", "connection.url", index.url(), "index", "pages"));
        for (int i = 0; i < settings.length; i += 2) {
            given.put(settings[i], settings[i + 1]);
        }
        task = new OpenSearchSinkTask(patienceMs);
        task.initialize(context);
        task.start(given);
    }

    /** As Connect does: the same records again while the task asks for it. The number of deliveries. */
    private int deliver(SinkRecord... batch) {
        for (int delivery = 1; delivery <= DELIVERIES_MAX; delivery++) {
            try {
                task.put(List.of(batch));
                return delivery;
            } catch (RetriableException again) {
                assertFalse(context.pauses.isEmpty(), "a repeat has to say how long to wait");
            }
        }
        throw new AssertionError("still repeating after " + DELIVERIES_MAX + " deliveries");
    }

    private SinkRecord upsert(String id, long version) {
        return records.next(id, version, Records.document(id + version));
    }

    private void holds(String... idsAndVersions) {
        Map<String, String> expected = new HashMap<>();
        for (String entry : idsAndVersions) {
            expected.put(entry.substring(0, 1), "{\"text\":\"" + entry + "\"}");
        }
        assertEquals(expected, index.documents);
    }

    @Test
    @DisplayName("Upserts and deletes arrive, stale versions and repeats change nothing")
    void writes() {
        start();
        SinkRecord[] batch = {upsert("a", 1), upsert("b", 5), records.next("a", 2L, null), upsert("b", 4),
            upsert("c", 1), records.next("d", 9L, null), upsert("d", 8)};
        assertEquals(1, deliver(batch));
        holds("b5", "c1");
        int writes = index.writes;
        deliver(batch);
        assertEquals(writes, index.writes, "a replay writes nothing");
        assertEquals(List.of(), context.reported, "a version conflict is no fault of a record");
    }

    @Test
    @DisplayName("Several records of one id in one batch are sent in their order, in one bulk")
    void order() {
        start();
        deliver(upsert("a", 1), upsert("b", 1), upsert("a", 2), records.next("a", 3L, null), upsert("a", 4));
        assertEquals(List.of(List.of("a", "b", "a", "a", "a")), index.bulks);
        holds("a4", "b1");
    }

    @Test
    @DisplayName("An earlier record of an id that is repeated alone does not undo the later one")
    void orderInRepeats() {
        start();
        index.itemFaults.put("a", new ArrayDeque<>(List.of(429)));
        assertEquals(2, deliver(upsert("a", 1), records.next("a", 2L, null), upsert("b", 1)));
        holds("b1");
        assertEquals(List.of(List.of("a", "a", "b"), List.of("a")), index.bulks);
    }

    @Test
    @DisplayName("Batches are bounded in records and in bytes; one record above the bytes goes alone")
    void bounds() {
        start("batch.size", "3", "batch.bytes", "1024");
        SinkRecord large = records.next("l", 1L, Records.document("x".repeat(2_000)));
        deliver(upsert("a", 1), upsert("b", 1), upsert("c", 1), upsert("d", 1), large, upsert("e", 1), upsert("f", 1));
        assertEquals(List.of(List.of("a", "b", "c"), List.of("d"), List.of("l"), List.of("e", "f")), index.bulks);
    }

    @Test
    @DisplayName("An index that is away, overloaded, cut off or talking nonsense is asked until all is there, once")
    void outages() {
        start();
        for (FakeIndex.Fault fault : FakeIndex.Fault.values()) {
            if (fault != FakeIndex.Fault.HELD) {
                index.faults.add(fault);
            }
        }
        assertEquals(6, deliver(upsert("a", 1), upsert("b", 1), records.next("", 1L, null)));
        holds("a1", "b1");
        assertEquals(2, index.writes, "an answer that was lost is no second write");
        assertEquals(List.of(2L), context.reported, "a bad record is reported once, however often it is delivered");
    }

    @Test
    @DisplayName("Pauses grow up to their limit, and begin anew after a success")
    void backoff() {
        start("retry.backoff.ms", "1000", "retry.backoff.max.ms", "4000");
        for (int i = 0; i < 40; i++) {
            index.faults.add(FakeIndex.Fault.ANSWERED_503);
        }
        deliver(upsert("a", 1));
        for (int i = 0; i < 40; i++) {
            assertTrue(context.pauses.get(i) >= 1 && context.pauses.get(i) <= Math.min(4_000, 1_000L << i));
        }
        assertTrue(context.pauses.stream().anyMatch(pause -> pause > 1_000));
        context.pauses.clear();
        index.faults.add(FakeIndex.Fault.ANSWERED_503);
        deliver(upsert("a", 2));
        assertTrue(context.pauses.get(0) <= 1_000);
    }

    @Test
    @DisplayName("Of a mixed answer only what failed in passing is sent again, and only what is bad is reported")
    void mixed() {
        start();
        index.itemFaults.put("b", new ArrayDeque<>(List.of(429, 503)));
        index.itemFaults.put("c", new ArrayDeque<>(List.of(400)));
        index.itemFaults.put("d", new ArrayDeque<>(List.of(403)));
        index.itemFaults.put("e", new ArrayDeque<>(List.of(400)));
        index.itemErrors.put("e", "index_closed_exception");
        assertEquals(3, deliver(upsert("a", 1), upsert("b", 1), upsert("c", 1), upsert("d", 1), upsert("e", 1)));
        holds("a1", "b1", "d1", "e1");
        assertEquals(List.of(List.of("a", "b", "c", "d", "e"), List.of("b", "d", "e"), List.of("b")), index.bulks);
        assertEquals(List.of(2L), context.reported);
        assertTrue(context.reasons.get(0).contains("index-events-0@2") && context.reasons.get(0).contains("as told"));
    }

    @Test
    @DisplayName("A delete of an index that is missing is not done: 404 counts only where the index itself was asked")
    void missingIndex() {
        start();
        index.itemFaults.put("a", new ArrayDeque<>(List.of(404)));
        index.itemErrors.put("a", "index_not_found_exception");
        assertEquals(2, deliver(records.next("a", 1L, null)));
        assertEquals(1L, index.versions.get("a"));
    }

    @Test
    @DisplayName("While there is no index nothing is sent, lest OpenSearch make one of its own")
    void noIndex() {
        start();
        index.missing = true;
        RetriableException e = assertThrows(RetriableException.class, () -> task.put(List.of(upsert("a", 1))));
        assertTrue(e.getMessage().contains("headrace provision"), e.getMessage());
        assertEquals(List.of(), index.bulks);
        index.missing = false;
        deliver(upsert("a", 2));
        int looks = index.looks;
        deliver(upsert("a", 3));
        assertEquals(looks, index.looks, "an index that was seen is not looked for at every bulk");
    }

    @Test
    @DisplayName("Bad records alone reach the dead letters, and the rest of their batch the index")
    void badRecords() {
        start("document.bytes.max", "100");
        deliver(records.next(null, 1L, Records.document("x")), upsert("a", 1), records.next("b", null, null),
                records.next("c", 1L, "[]"), records.next("d", 1L, Records.document("x".repeat(100))), upsert("e", 1));
        holds("a1", "e1");
        assertEquals(List.of(0L, 2L, 3L, 4L), context.reported);
        deliver(records.next("b", "x", null));
        assertEquals(5, context.reported.size(), "a delivery of nothing but bad records is through, too");
    }

    @Test
    @DisplayName("Without a dead letter queue errors.tolerance decides: all passes a bad record over, none stops")
    void tolerance() {
        context.reports = false;
        start("errors.tolerance", "all");
        deliver(records.next(null, 1L, null), upsert("a", 1));
        holds("a1");
        task.stop();
        start();
        SinkRecord bad = records.next(null, 1L, null);
        ConnectException e = assertThrows(ConnectException.class, () -> task.put(List.of(bad)));
        assertFalse(e instanceof RetriableException);
        assertTrue(e.getMessage().contains("errors.tolerance"), e.getMessage());
    }

    @Test
    @DisplayName("A reporter that tolerates nothing stops the task, before any offset of that batch can be committed")
    void refusingReporter() {
        context.refusal = new ConnectException("tolerance exceeded");
        start();
        assertThrows(ConnectException.class, () -> task.put(List.of(upsert("a", 1), records.next(null, 1L, null))));
    }

    @Test
    @DisplayName("A bulk too large for what stands before the index is halved; one record alone that is, is bad")
    void tooLarge() {
        start();
        index.bytesMax = 400;
        assertEquals(1, deliver(upsert("a", 1), upsert("b", 1), upsert("c", 1), upsert("d", 1),
                records.next("l", 1L, Records.document("x".repeat(500))), upsert("e", 1)));
        holds("a1", "b1", "c1", "d1", "e1");
        assertEquals(List.of(4L), context.reported);
    }

    @Test
    @DisplayName("A record that spoils a whole bulk is found, and the others arrive")
    void spoiled() {
        start();
        index.poison = "poison";
        assertEquals(1, deliver(upsert("a", 1), upsert("b", 1), records.next("p", 1L, Records.document("poison")),
                upsert("c", 1), upsert("d", 1)));
        holds("a1", "b1", "c1", "d1");
        assertEquals(List.of(2L), context.reported);
    }

    @Test
    @DisplayName("A wrong password, or a proxy's refusal, stops the task with the remedy and dead-letters nothing")
    void misconfigured() {
        for (int status : new int[] {401, 403, 400, 301}) {
            start();
            index.status = status;
            index.page = "<html>no</html>";
            ConnectException e = assertThrows(ConnectException.class, () -> task.put(List.of(upsert("a", 1))));
            assertFalse(e instanceof RetriableException);
            assertTrue(e.getMessage().contains("correct connection."), e.getMessage());
            task.stop();
        }
        assertEquals(List.of(), context.reported);
    }

    @Test
    @DisplayName("put() is soon through while the index holds its answer, and goes on with that very request")
    void slowAnswer() {
        start(50);
        index.faults.add(FakeIndex.Fault.HELD);
        SinkRecord[] batch = {upsert("a", 1), upsert("b", 1)};
        assertThrows(RetriableException.class, () -> task.put(List.of(batch)));
        assertThrows(RetriableException.class, () -> task.put(List.of(batch)));
        assertTrue(context.pauses.stream().allMatch(pause -> pause == 1));
        index.release.countDown();
        deliver(batch);
        assertEquals(List.of(List.of("a", "b")), index.bulks);
    }

    @Test
    @DisplayName("A task that is told to stop, or loses its partitions, lets go of the request that is out")
    void stops() {
        start(50);
        index.faults.add(FakeIndex.Fault.HELD);
        SinkRecord record = upsert("a", 1);
        assertThrows(RetriableException.class, () -> task.put(List.of(record)));
        task.close(Set.of(new TopicPartition("index-events", 0)));
        deliver(record); // assigned anew: the held request does not stand in its way
        holds("a1");
        index.faults.add(FakeIndex.Fault.HELD);
        assertThrows(RetriableException.class, () -> task.put(List.of(upsert("a", 2))));
        long before = System.nanoTime();
        task.stop();
        assertTrue(System.nanoTime() - before < 2_000_000_000L);
    }

    @Test
    @DisplayName("A task that is stopped while the index is away has reported nothing that the next one reports again")
    void reportsLast() {
        start();
        index.faults.add(FakeIndex.Fault.ANSWERED_503);
        SinkRecord[] batch = {records.next(null, 1L, null), upsert("a", 1)};
        assertThrows(RetriableException.class, () -> task.put(List.of(batch)));
        assertEquals(List.of(), context.reported);
        task.stop();
        start();
        deliver(batch);
        assertEquals(List.of(0L), context.reported);
    }

    @Test
    @DisplayName("A topic that was made anew has the same offsets with other records: nothing is taken for settled")
    void recreatedTopic() {
        start();
        deliver(upsert("a", 1), upsert("b", 1));
        Records anew = new Records();
        deliver(anew.next("a", 2L, Records.document("a2")), anew.next("c", 1L, Records.document("c1")));
        holds("a2", "b1", "c1");
    }

    @Test
    @DisplayName("A node that is away is passed by")
    void nodes() throws IOException {
        String gone;
        try (FakeIndex other = new FakeIndex()) {
            gone = other.url();
        }
        start("connection.url", gone + "," + index.url());
        assertEquals(2, deliver(upsert("a", 1)));
        holds("a1");
    }

    @Test
    @DisplayName("User and password go with every request")
    void authorization() {
        start("connection.username", "u", "connection.password", "p:é");
        deliver(upsert("a", 1));
        assertEquals(List.of("Basic dTpwOsOp", "Basic dTpwOsOp"), index.authorizations);
    }

    @Test
    @DisplayName("What a task did is told to JMX while it runs")
    void metrics() throws Exception {
        start();
        deliver(upsert("a", 1), upsert("a", 1), records.next("a", 2L, null), records.next(null, 1L, null));
        ObjectName name = new ObjectName("io.headrace.sink:type=task,name=\"test-0\"");
        var server = ManagementFactory.getPlatformMBeanServer();
        List<Object> told = new ArrayList<>();
        for (String attribute : List.of("Upserts", "Deletes", "Stale", "Bad", "Requests", "Retries")) {
            told.add(server.getAttribute(name, attribute));
        }
        assertEquals(List.of(1L, 1L, 1L, 1L, 1L, 0L), told);
        task.stop();
        assertFalse(server.isRegistered(name));
    }
}
