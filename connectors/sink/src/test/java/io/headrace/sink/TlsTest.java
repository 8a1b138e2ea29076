package io.headrace.sink;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.InputStream;
import java.nio.file.Files;
import java.nio.file.Path;
import java.security.KeyStore;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import javax.net.ssl.KeyManagerFactory;
import javax.net.ssl.SSLContext;
import org.apache.kafka.connect.errors.RetriableException;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.DisplayName;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

class TlsTest {
    private static final String PASSWORD = "changeit";

    @TempDir
    private static Path folder;

    private static void keytool(String... words) throws Exception {
        List<String> command = new ArrayList<>(
                List.of(Path.of(System.getProperty("java.home"), "bin", "keytool").toString()));
        command.addAll(List.of(words));
        Process process = new ProcessBuilder(command).redirectErrorStream(true).start();
        String said = new String(process.getInputStream().readAllBytes());
        assertEquals(0, process.waitFor(), said);
    }

    @BeforeAll
    static void certificate() throws Exception {
        String store = folder.resolve("server.p12").toString();
        keytool("-genkeypair", "-keystore", store, "-storetype", "PKCS12", "-storepass", PASSWORD, "-alias", "server",
                "-keyalg", "EC", "-dname", "CN=localhost", "-ext", "san=ip:127.0.0.1", "-validity", "2");
        keytool("-exportcert", "-rfc", "-keystore", store, "-storepass", PASSWORD, "-alias", "server", "-file",
                folder.resolve("authority.pem").toString());
    }

    private static SSLContext context() throws Exception {
        KeyStore store = KeyStore.getInstance("PKCS12");
        try (InputStream file = Files.newInputStream(folder.resolve("server.p12"))) {
            store.load(file, PASSWORD.toCharArray());
        }
        KeyManagerFactory keys = KeyManagerFactory.getInstance(KeyManagerFactory.getDefaultAlgorithm());
        keys.init(store, PASSWORD.toCharArray());
        SSLContext context = SSLContext.getInstance("TLS");
        context.init(keys.getKeyManagers(), null, null);
        return context;
    }

    private static void put(FakeIndex index, String... settings) {
        Map<String, String> given = new HashMap<>();
        given.putAll(Map.of("name", "tls", "connection.url", index.url(), "index", "pages"));
        for (int i = 0; i < settings.length; i += 2) {
            given.put(settings[i], settings[i + 1]);
        }
        OpenSearchSinkTask task = new OpenSearchSinkTask(20_000);
        task.initialize(new Records.Context());
        task.start(given);
        try {
            task.put(List.of(new Records().next("a", 1L, Records.document("a"))));
        } finally {
            task.stop();
        }
    }

    @Test
    @DisplayName("A certificate is trusted by a PEM file or a key store, and by nothing else")
    void trust() throws Exception {
        try (FakeIndex index = new FakeIndex(context())) {
            put(index, "connection.ssl.truststore.location", folder.resolve("authority.pem").toString(),
                    "connection.ssl.truststore.type", "PEM");
            put(index, "connection.ssl.truststore.location", folder.resolve("server.p12").toString(),
                    "connection.ssl.truststore.type", "PKCS12", "connection.ssl.truststore.password", PASSWORD,
                    "connection.ssl.keystore.location", folder.resolve("server.p12").toString(),
                    "connection.ssl.keystore.type", "PKCS12", "connection.ssl.keystore.password", PASSWORD);
            assertEquals(2, index.bulks.size());
            RetriableException e = assertThrows(RetriableException.class, () -> put(index));
            assertTrue(e.getMessage().contains("SSLHandshakeException"), e.getMessage());
            assertEquals(2, index.bulks.size());
        }
    }
}
