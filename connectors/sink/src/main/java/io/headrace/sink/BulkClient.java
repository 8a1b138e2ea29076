package io.headrace.sink;

import java.io.IOException;
import java.io.InputStream;
import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.security.GeneralSecurityException;
import java.security.KeyStore;
import java.security.cert.Certificate;
import java.security.cert.CertificateFactory;
import java.time.Duration;
import java.util.Base64;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import javax.net.ssl.KeyManagerFactory;
import javax.net.ssl.SSLContext;
import javax.net.ssl.TrustManagerFactory;
import org.apache.kafka.common.config.ConfigException;

/**
 * The HTTP of the sink: one request at a time, to one of the nodes. It decides nothing about an answer.
 *
 * <p>Before the first bulk after a start or a failure it asks whether the index is there. A bulk to a missing index
 * would have OpenSearch make one of that name, with guessed field types.
 */
final class BulkClient {
    /** An answer: the HTTP status and the whole body. */
    record Answer(int status, byte[] body) {
        String text() {
            String text = new String(body, StandardCharsets.UTF_8);
            return text.length() > 500 ? text.substring(0, 500) + "..." : text;
        }
    }

    // Of each item only what decides; for a thousand documents that spares 200 KB of answer.
    private static final String WANTED = "?filter_path=items.*.status,items.*.result,items.*.error.type,"
            + "items.*.error.reason,items.*.error.caused_by.reason,error,status";

    private final HttpClient http;
    private final List<URI> nodes;
    private final String index;
    private final String authorization;
    private final Duration readTimeout;
    private int node;
    private boolean indexSeen;

    /** ConfigException when a key or trust store cannot be read. */
    BulkClient(SinkSettings settings) {
        HttpClient.Builder builder = HttpClient.newBuilder()
                .version(HttpClient.Version.HTTP_1_1)
                .followRedirects(HttpClient.Redirect.NEVER) // a password goes nowhere but where it was meant to go
                .connectTimeout(Duration.ofMillis(settings.getInt(SinkSettings.CONNECT_TIMEOUT_MS)));
        SSLContext tls = tls(settings);
        http = (tls == null ? builder : builder.sslContext(tls)).build();
        nodes = settings.urls();
        index = settings.getString(SinkSettings.INDEX);
        readTimeout = Duration.ofMillis(settings.getInt(SinkSettings.READ_TIMEOUT_MS));
        String user = settings.getString(SinkSettings.USERNAME);
        authorization = user == null ? null : "Basic " + Base64.getEncoder().encodeToString(
                (user + ":" + settings.secret(SinkSettings.PASSWORD)).getBytes(StandardCharsets.UTF_8));
    }

    /** Sends the lines. The future fails with an IOException when no answer came; cancelling it ends the exchange. */
    CompletableFuture<Answer> send(byte[] lines) {
        URI base = nodes.get(node);
        HttpRequest bulk = request(base, "/_bulk" + WANTED).header("Content-Type", "application/x-ndjson")
                .POST(HttpRequest.BodyPublishers.ofByteArray(lines)).build();
        if (indexSeen) {
            return exchange(bulk);
        }
        CompletableFuture<Answer> look = exchange(request(base, "?filter_path=*.aliases").GET().build());
        return look.thenCompose(answer ->
                answer.status() == 200 ? exchange(bulk) : CompletableFuture.completedFuture(answer));
    }

    /** After an answer to a bulk: the index is there. */
    void worked() {
        indexSeen = true;
    }

    /** After a failure: look anew, at the next node. */
    void failed() {
        indexSeen = false;
        node = (node + 1) % nodes.size();
    }

    /** Where the next request goes, for messages. */
    String target() {
        return nodes.get(node) + "/" + index;
    }

    private HttpRequest.Builder request(URI base, String path) {
        HttpRequest.Builder request =
                HttpRequest.newBuilder(URI.create(base + "/" + index + path)).timeout(readTimeout);
        return authorization == null ? request : request.header("Authorization", authorization);
    }

    private CompletableFuture<Answer> exchange(HttpRequest request) {
        return http.sendAsync(request, HttpResponse.BodyHandlers.ofByteArray())
                .thenApply(response -> new Answer(response.statusCode(), response.body()));
    }

    private static SSLContext tls(SinkSettings settings) {
        String trust = settings.getString(SinkSettings.TRUSTSTORE);
        String keys = settings.getString(SinkSettings.KEYSTORE);
        if (trust == null && keys == null) {
            return null;
        }
        try {
            TrustManagerFactory trusted = null;
            if (trust != null) {
                trusted = TrustManagerFactory.getInstance(TrustManagerFactory.getDefaultAlgorithm());
                trusted.init(store(settings, trust, SinkSettings.TRUSTSTORE_TYPE, SinkSettings.TRUSTSTORE_PASSWORD));
            }
            KeyManagerFactory own = null;
            if (keys != null) {
                own = KeyManagerFactory.getInstance(KeyManagerFactory.getDefaultAlgorithm());
                own.init(store(settings, keys, SinkSettings.KEYSTORE_TYPE, SinkSettings.KEYSTORE_PASSWORD),
                        settings.secret(SinkSettings.KEYSTORE_PASSWORD).toCharArray());
            }
            SSLContext context = SSLContext.getInstance("TLS");
            context.init(own == null ? null : own.getKeyManagers(), trusted == null ? null : trusted.getTrustManagers(),
                    null);
            return context;
        } catch (GeneralSecurityException e) {
            throw new ConfigException("connection.ssl.*: needed keys and certificates for TLS, got " + e.getMessage());
        }
    }

    private static KeyStore store(SinkSettings settings, String path, String typeName, String passwordName)
            throws GeneralSecurityException {
        String type = settings.getString(typeName);
        String password = settings.secret(passwordName);
        try (InputStream file = Files.newInputStream(Path.of(path))) {
            if (!type.equals("PEM")) {
                KeyStore store = KeyStore.getInstance(type);
                store.load(file, password == null ? null : password.toCharArray());
                return store;
            }
            KeyStore store = KeyStore.getInstance(KeyStore.getDefaultType());
            store.load(null, null);
            for (Certificate certificate : CertificateFactory.getInstance("X.509").generateCertificates(file)) {
                store.setCertificateEntry("authority-" + store.size(), certificate);
            }
            return store;
        } catch (IOException e) {
            throw new ConfigException(typeName.replace(".type", ".location"), path,
                    "needed a readable file of type " + type + ", got " + e);
        }
    }
}
