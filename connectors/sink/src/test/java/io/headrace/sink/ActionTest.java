package io.headrace.sink;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.List;
import java.util.Map;
import org.apache.kafka.connect.sink.SinkRecord;
import org.junit.jupiter.api.DisplayName;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

class ActionTest {
    private final Records records = new Records();

    private static byte[] ascii(String text) {
        return text.getBytes(StandardCharsets.US_ASCII);
    }

    private static String lines(SinkRecord record) throws BadRecord {
        return new String(Action.of(record, "doc_version", 1_000).lines(), StandardCharsets.UTF_8);
    }

    private String wrong(Object key, Object version, Object value) {
        SinkRecord record = records.next(key, version, value);
        return assertThrows(BadRecord.class, () -> lines(record)).getMessage();
    }

    @Test
    @DisplayName("An upsert is two lines, the second the document as it came; a delete is one, with a version too")
    void form() throws BadRecord {
        assertEquals("{\"index\":{\"_id\":\"a\",\"version\":7,\"version_type\":\"external\"}}\n{\"text\":\"é\"}\n",
                lines(records.next("a", 7L, Records.document("é"))));
        assertEquals("{\"delete\":{\"_id\":\"a\",\"version\":8,\"version_type\":\"external\"}}\n",
                lines(records.next("a", 8L, null)));
    }

    @Test
    @DisplayName("Bytes, a string and what JsonConverter makes of it come to the same document")
    void values() throws BadRecord {
        String expected = lines(records.next("a", 1L, ascii("{\"n\":1}")));
        assertEquals(expected, lines(records.next("a", 1L, "{\"n\":1}")));
        assertEquals(expected, lines(records.next("a", 1L, Map.of("n", 1L))));
    }

    @Test
    @DisplayName("Line ends between a document's parts cannot begin another action")
    void oneLine() throws BadRecord {
        String lines = lines(records.next("a", 1L, "{\r\n\"n\":\n1}\n"));
        assertEquals(2, lines.chars().filter(c -> c == '\n').count());
        assertEquals(-1, lines.indexOf('\r'));
    }

    @Test
    @DisplayName("A key cannot write itself into the action: quotes and line ends are escaped")
    void hostileKey() throws BadRecord {
        assertTrue(lines(records.next("a\"}}\n", 1L, null)).startsWith("{\"delete\":{\"_id\":\"a\\\"}}\\u000a\","));
    }

    @Test
    @DisplayName("The version may be a whole number of any width, or digits as text or bytes")
    void versions() throws BadRecord {
        for (Object version : List.of(7L, 7, (short) 7, (byte) 7, "7", ascii("7"))) {
            assertTrue(lines(records.next("a", version, null)).contains("\"version\":7,"), version.toString());
        }
        for (Object version : List.of(0, "0", Long.MAX_VALUE, "9223372036854775807")) {
            assertTrue(lines(records.next("a", version, null)).contains("\"version\":" + version + ","));
        }
    }

    @Test
    @DisplayName("A version that has to be guessed makes a bad record: a wrong one would bury the document")
    void badVersions() {
        byte[] binary = ByteBuffer.allocate(8).putLong(1L << 20).array();
        for (Object version : List.of(-1L, -1, 1.0, 1f, true, "", " 7", "7 ", "+7", "-7", "07", "7.0", "1e3", "0x7",
                "٧", "9223372036854775808", "99999999999999999999", ascii(""), binary,
                new byte[] {(byte) 0xff}, List.of(7))) {
            assertTrue(wrong("a", version, null).contains("doc_version"), version.toString());
        }
        assertTrue(wrong("a", null, null).contains("got none"));
        SinkRecord twice = records.next("a", 1L, null);
        twice.headers().add("doc_version", 2L, null);
        assertTrue(assertThrows(BadRecord.class, () -> lines(twice)).getMessage().contains("several"));
    }

    @Test
    @DisplayName("Without a key that can be an id there is no document")
    void badKeys() throws BadRecord {
        for (Object key : List.of("", "é".repeat(257), new byte[] {(byte) 0xc3}, "\ud800", 7L, Map.of())) {
            assertTrue(wrong(key, 1L, null).startsWith("needed"), key.toString());
        }
        assertTrue(wrong(null, 1L, null).contains("got null"));
        lines(records.next("é".repeat(256), 1L, null));
        assertEquals(lines(records.next("a", 1L, null)), lines(records.next(ascii("a"), 1L, null)));
    }

    @ParameterizedTest
    @DisplayName("Only a JSON object is a document; the word null is not a delete")
    @ValueSource(strings = {"", "null", "[]", "\"x\"", "1", "{\"a\":1", "{} {}", "not json"})
    void badValues(String value) {
        assertTrue(wrong("a", 1L, value).startsWith("needed"));
        assertTrue(wrong("a", 1L, ascii(value)).startsWith("needed"));
    }

    @Test
    @DisplayName("Bytes that are no UTF-8, halves of characters and other people's types are no document")
    void otherValues() {
        wrong("a", 1L, new byte[] {'{', '"', (byte) 0xff, '"', ':', '1', '}'});
        wrong("a", 1L, "{\"a\":\"\ud800\"}");
        assertTrue(wrong("a", 1L, List.of(1)).contains("schemas.enable=false"));
    }

    @Test
    @DisplayName("The size limit is of the document's bytes, and says which setting raises it")
    void size() throws BadRecord {
        lines(records.next("a", 1L, Records.document("x".repeat(989))));
        String message = wrong("a", 1L, Records.document("x".repeat(990)));
        assertTrue(message.contains("1001") && message.contains("document.bytes.max"), message);
    }
}
