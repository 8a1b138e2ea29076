package io.headrace.sink;

import com.sun.net.httpserver.HttpExchange;
import com.sun.net.httpserver.HttpServer;
import com.sun.net.httpserver.HttpsConfigurator;
import com.sun.net.httpserver.HttpsServer;
import java.io.IOException;
import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.nio.charset.StandardCharsets;
import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Queue;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import javax.net.ssl.SSLContext;

/**
 * An index that keeps OpenSearch's rules for external versions, over real HTTP, and that fails as it is told to.
 *
 * <p>All of its state is guarded by itself: the server answers in threads of its own.
 */
final class FakeIndex implements AutoCloseable {
    /** What happens to the next bulk requests, one each. */
    enum Fault { ANSWERED_503, ANSWERED_429, CUT_BEFORE, CUT_AFTER, GARBAGE, HELD }

    final Map<String, String> documents = new HashMap<>(); // id to the source's line
    final Map<String, Long> versions = new HashMap<>(); // of documents and of deletes
    final List<List<String>> bulks = new ArrayList<>(); // ids in the order sent, of each bulk that was carried out
    final List<String> authorizations = new ArrayList<>();
    final Queue<Fault> faults = new ArrayDeque<>();
    final Map<String, Queue<Integer>> itemFaults = new HashMap<>(); // id: statuses for its next actions
    final Map<String, String> itemErrors = new HashMap<>(); // id: the type of the error of such an answer
    final CountDownLatch release = new CountDownLatch(1); // lets go what is HELD
    int writes; // that changed something
    int looks; // for whether the index is there
    int status = 200; // of every answer
    String page = "{}"; // with a status other than 200
    boolean missing;
    int bytesMax = Integer.MAX_VALUE;
    String poison = ""; // a bulk with it is refused as a whole

    private final HttpServer server;
    private final ExecutorService threads = Executors.newCachedThreadPool();

    private final String scheme;

    FakeIndex() throws IOException {
        this(null);
    }

    /** Over TLS when there is a context for it. */
    FakeIndex(SSLContext tls) throws IOException {
        InetSocketAddress address = new InetSocketAddress(InetAddress.getLoopbackAddress(), 0);
        scheme = tls == null ? "http" : "https";
        server = tls == null ? HttpServer.create(address, 0) : HttpsServer.create(address, 0);
        if (server instanceof HttpsServer https) {
            https.setHttpsConfigurator(new HttpsConfigurator(tls));
        }
        server.createContext("/", this::answer);
        server.setExecutor(threads);
        server.start();
    }

    String url() {
        return scheme + "://127.0.0.1:" + server.getAddress().getPort();
    }

    @Override
    public void close() {
        release.countDown();
        server.stop(0);
        threads.shutdownNow();
    }

    private void answer(HttpExchange exchange) throws IOException {
        String body = new String(exchange.getRequestBody().readAllBytes(), StandardCharsets.UTF_8);
        Fault fault;
        synchronized (this) {
            authorizations.add(exchange.getRequestHeaders().getFirst("Authorization"));
            if (exchange.getRequestMethod().equals("GET")) {
                looks++;
                reply(exchange, missing ? 404 : status, missing || status == 200 ? "{}" : page);
                return;
            }
            fault = faults.poll();
        }
        if (fault == Fault.HELD) {
            await();
        }
        synchronized (this) {
            if (fault == Fault.CUT_BEFORE) {
                exchange.close();
                return;
            }
            if (fault == Fault.ANSWERED_503 || fault == Fault.ANSWERED_429) {
                reply(exchange, fault == Fault.ANSWERED_503 ? 503 : 429, "busy");
            } else if (status != 200) {
                reply(exchange, status, page);
            } else if (body.length() > bytesMax) {
                reply(exchange, 413, "too large");
            } else if (!poison.isEmpty() && body.contains(poison)) {
                String reason = "x".repeat(900); // longer than what a message shows of it
                reply(exchange, 400, "{\"error\":{\"type\":\"parse_exception\",\"reason\":\"" + reason + "\"}}");
            } else {
                String items = carryOut(body);
                if (fault == Fault.CUT_AFTER) {
                    exchange.close();
                } else {
                    reply(exchange, 200, fault == Fault.GARBAGE ? "<html>" : items);
                }
            }
        }
    }

    private void await() {
        try {
            release.await();
        } catch (InterruptedException e) {
            Thread.currentThread().interrupt();
        }
    }

    private static void reply(HttpExchange exchange, int status, String body) throws IOException {
        byte[] bytes = body.getBytes(StandardCharsets.UTF_8);
        exchange.sendResponseHeaders(status, bytes.length);
        exchange.getResponseBody().write(bytes);
        exchange.close();
    }

    private String carryOut(String body) {
        List<String> ids = new ArrayList<>();
        StringBuilder items = new StringBuilder("{\"items\":[");
        String[] lines = body.split("\n");
        for (int i = 0; i < lines.length; i++) {
            Map<?, ?> action = object(lines[i]);
            boolean delete = action.containsKey("delete");
            Map<?, ?> meta = (Map<?, ?>) action.get(delete ? "delete" : "index");
            String id = (String) meta.get("_id");
            if (!"external".equals(meta.get("version_type"))) {
                throw new AssertionError("an action without an external version: " + lines[i]);
            }
            String source = delete ? null : lines[++i];
            items.append(ids.isEmpty() ? "" : ",").append("{\"").append(delete ? "delete" : "index").append("\":{")
                    .append(outcome(id, (Long) meta.get("version"), source)).append("}}");
            ids.add(id);
        }
        bulks.add(ids);
        return items.append("]}").toString();
    }

    private String outcome(String id, long version, String source) {
        Queue<Integer> planned = itemFaults.get(id);
        if (planned != null && !planned.isEmpty()) {
            return "\"status\":" + planned.poll() + ",\"error\":{\"type\":\""
                    + itemErrors.getOrDefault(id, "mapper_parsing_exception") + "\",\"reason\":\"as told\"}";
        }
        if (versions.getOrDefault(id, -1L) >= version) {
            return "\"status\":409,\"error\":{\"type\":\"version_conflict_engine_exception\",\"reason\":\"newer\"}";
        }
        versions.put(id, version);
        writes++;
        String before = source == null ? documents.remove(id) : documents.put(id, source);
        if (source == null) {
            return before == null ? "\"status\":404,\"result\":\"not_found\"" : "\"status\":200,\"result\":\"deleted\"";
        }
        return before == null ? "\"status\":201,\"result\":\"created\"" : "\"status\":200,\"result\":\"updated\"";
    }

    private static Map<?, ?> object(String line) {
        try {
            return (Map<?, ?>) Json.parse(line);
        } catch (BadRecord e) {
            throw new AssertionError(line, e);
        }
    }
}
