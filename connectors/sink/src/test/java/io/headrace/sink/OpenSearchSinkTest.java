package io.headrace.sink;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.ServiceLoader;
import java.util.stream.Collectors;
import org.apache.kafka.common.config.ConfigException;
import org.apache.kafka.connect.sink.SinkConnector;
import org.junit.jupiter.api.DisplayName;
import org.junit.jupiter.api.Test;

class OpenSearchSinkTest {
    private static final Map<String, String> RIGHT =
            Map.of("name", "pages", "connection.url", "http://127.0.0.1:9200,https://b:9200/", "index", "pages");

    private static Map<String, String> with(String... changes) {
        Map<String, String> settings = new HashMap<>(RIGHT);
        for (int i = 0; i < changes.length; i += 2) {
            settings.put(changes[i], changes[i + 1]);
        }
        settings.values().removeIf(value -> value == null);
        return settings;
    }

    private static String errors(Map<String, String> settings) {
        return new OpenSearchSink().validate(settings).configValues().stream().flatMap(v -> v.errorMessages().stream())
                .collect(Collectors.joining("; "));
    }

    @Test
    @DisplayName("Connect finds the connector by the service file")
    void isFound() {
        List<String> found = ServiceLoader.load(SinkConnector.class).stream().map(p -> p.type().getName()).toList();
        assertEquals(List.of("io.headrace.sink.OpenSearchSink"), found);
    }

    @Test
    @DisplayName("Right settings are right, and every task gets them with a number of its own")
    void tasks() {
        assertEquals("", errors(RIGHT));
        OpenSearchSink sink = new OpenSearchSink();
        sink.start(RIGHT);
        List<Map<String, String>> tasks = sink.taskConfigs(3);
        assertEquals(List.of("pages-0", "pages-1", "pages-2"),
                tasks.stream().map(task -> new SinkSettings(task).taskName()).toList());
        assertEquals(OpenSearchSinkTask.class, sink.taskClass());
        sink.stop();
    }

    @Test
    @DisplayName("A wrong setting is refused before anything runs, by its name, with what it needed and what came")
    void messages() {
        String[][] cases = {
            {"connection.url", null, "connection.url"},
            {"connection.url", "127.0.0.1:9200", "needed http:// or https:// URLs, got '[127.0.0.1:9200]'"},
            {"connection.url", "http://user:secret@a:1", "needed http"},
            {"connection.url", "http://a:1/?x", "needed http"},
            {"index", null, "index"},
            {"index", "Pages", "needed one index or alias, got 'Pages'"},
            {"index", "a,b", "needed one index"},
            {"index", "../a", "needed one index"},
            {"batch.size", "0", "batch.size"},
            {"batch.bytes", "x", "batch.bytes"},
            {"connection.username", "u", "needed both or neither"},
            {"connection.password", "p", "needed both or neither"},
            {"connection.ssl.truststore.type", "DER", "connection.ssl.truststore.type"},
            {"connection.ssl.keystore.location", "k.p12", "connection.ssl.keystore.password: needed with"},
            {"retry.backoff.ms", "20000", "needed at least retry.backoff.ms, 20000, got 10000"},
            {"version.header", "", "version.header"},
        };
        for (String[] one : cases) {
            Map<String, String> settings = with(one[0], one[1]);
            assertTrue(errors(settings).contains(one[2]), one[0] + "=" + one[1] + ": " + errors(settings));
            assertThrows(ConfigException.class, () -> new OpenSearchSink().start(settings), one[0]);
        }
        String plain = errors(with("connection.url", "http://a:1", "connection.ssl.truststore.location", "ca.pem"));
        assertTrue(plain.contains("needed an https:// URL"), plain);
    }

    @Test
    @DisplayName("A store that cannot be read stops the task with the file's name")
    void stores() {
        Map<String, String> settings = with("connection.ssl.truststore.location", "nowhere.pem",
                "connection.ssl.truststore.type", "PEM");
        SinkSettings read = new SinkSettings(settings);
        String message = assertThrows(ConfigException.class, () -> new BulkClient(read)).getMessage();
        assertTrue(message.contains("nowhere.pem") && message.contains("PEM"), message);
    }

    @Test
    @DisplayName("A password is not shown where settings are printed")
    void secrets() {
        SinkSettings settings = new SinkSettings(with("connection.username", "u", "connection.password", "pst"));
        assertEquals("pst", settings.secret(SinkSettings.PASSWORD));
        assertTrue(!settings.values().toString().contains("pst"));
    }
}
