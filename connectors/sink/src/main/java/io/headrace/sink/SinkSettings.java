package io.headrace.sink;

import java.net.URI;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import org.apache.kafka.common.config.AbstractConfig;
import org.apache.kafka.common.config.ConfigDef;
import org.apache.kafka.common.config.ConfigDef.Importance;
import org.apache.kafka.common.config.ConfigDef.Range;
import org.apache.kafka.common.config.ConfigDef.Type;
import org.apache.kafka.common.config.ConfigDef.ValidString;
import org.apache.kafka.common.config.ConfigException;
import org.apache.kafka.common.config.types.Password;

/** What a user may set. Names that Aiven's OpenSearch connector has too mean the same here. */
final class SinkSettings extends AbstractConfig {
    static final String URL = "connection.url";
    static final String USERNAME = "connection.username";
    static final String PASSWORD = "connection.password";
    static final String CONNECT_TIMEOUT_MS = "connection.timeout.ms";
    static final String READ_TIMEOUT_MS = "read.timeout.ms";
    static final String INDEX = "index";
    static final String VERSION_HEADER = "version.header";
    static final String BATCH_RECORDS = "batch.size";
    static final String BATCH_BYTES = "batch.bytes";
    static final String DOCUMENT_BYTES_MAX = "document.bytes.max";
    static final String BACKOFF_MS = "retry.backoff.ms";
    static final String BACKOFF_MS_MAX = "retry.backoff.max.ms";
    static final String TRUSTSTORE = "connection.ssl.truststore.location";
    static final String TRUSTSTORE_PASSWORD = "connection.ssl.truststore.password";
    static final String TRUSTSTORE_TYPE = "connection.ssl.truststore.type";
    static final String KEYSTORE = "connection.ssl.keystore.location";
    static final String KEYSTORE_PASSWORD = "connection.ssl.keystore.password";
    static final String KEYSTORE_TYPE = "connection.ssl.keystore.type";
    static final String TOLERANCE = "errors.tolerance"; // Connect's own; a task sees the whole configuration
    static final String NAME = "name"; // Connect's own
    static final String TASK = "headrace.sink.task"; // set by the connector, not by a user

    static final ConfigDef DEFINITION = new ConfigDef()
            .define(URL, Type.LIST, ConfigDef.NO_DEFAULT_VALUE, named("http:// or https:// URLs", SinkSettings::urls),
                    Importance.HIGH, "Base URLs of OpenSearch nodes; the next one is tried when one is away.")
            .define(INDEX, Type.STRING, ConfigDef.NO_DEFAULT_VALUE, named("one index or alias", SinkSettings::index),
                    Importance.HIGH, "The index, or write alias, that takes all records. It has to exist.")
            .define(USERNAME, Type.STRING, null, Importance.MEDIUM, "User for HTTP basic authentication.")
            .define(PASSWORD, Type.PASSWORD, null, Importance.MEDIUM, "Password for HTTP basic authentication.")
            .define(CONNECT_TIMEOUT_MS, Type.INT, 5_000, Range.between(1, 600_000), Importance.LOW,
                    "Longest wait for a connection.")
            .define(READ_TIMEOUT_MS, Type.INT, 60_000, Range.between(1, 3_600_000), Importance.LOW,
                    "Longest wait for the answer to a bulk request; then it is sent again.")
            .define(VERSION_HEADER, Type.STRING, "doc_version", new ConfigDef.NonEmptyString(), Importance.MEDIUM,
                    "The record header with the document's version, on upserts and deletes alike.")
            .define(BATCH_RECORDS, Type.INT, 1_000, Range.between(1, 100_000), Importance.MEDIUM,
                    "Most records of one bulk request.")
            .define(BATCH_BYTES, Type.INT, 5 << 20, Range.between(1_024, 90 << 20), Importance.MEDIUM,
                    "Most bytes of one bulk request, unless one record alone has more. OpenSearch takes 100 MB.")
            .define(DOCUMENT_BYTES_MAX, Type.INT, 10 << 20, Range.between(1, 90 << 20), Importance.MEDIUM,
                    "Most bytes of one document; a larger one is a bad record.")
            .define(BACKOFF_MS, Type.LONG, 200L, Range.between(1, 3_600_000), Importance.LOW,
                    "Pause before the first repeat of a failed request; it doubles, and is dealt at random up to that.")
            .define(BACKOFF_MS_MAX, Type.LONG, 10_000L, Range.between(1, 3_600_000), Importance.LOW,
                    "Longest pause. Repeats have no end: a record waits until the index is back.")
            .define(TRUSTSTORE, Type.STRING, null, Importance.MEDIUM,
                    "File of the certificate authorities to trust; without it those that Java trusts.")
            .define(TRUSTSTORE_PASSWORD, Type.PASSWORD, null, Importance.MEDIUM, "Password of that file.")
            .define(TRUSTSTORE_TYPE, Type.STRING, "JKS", ValidString.in("PEM", "PKCS12", "JKS"), Importance.LOW,
                    "Form of that file.")
            .define(KEYSTORE, Type.STRING, null, Importance.MEDIUM,
                    "File of our certificate and key, for clusters that ask for one.")
            .define(KEYSTORE_PASSWORD, Type.PASSWORD, null, Importance.MEDIUM, "Password of that file and of its key.")
            .define(KEYSTORE_TYPE, Type.STRING, "JKS", ValidString.in("PKCS12", "JKS"), Importance.LOW,
                    "Form of that file.");

    private final Map<String, String> raw;

    /** ConfigException, with all that is wrong, when the settings do not fit together. */
    SinkSettings(Map<String, String> raw) {
        super(DEFINITION, raw);
        this.raw = raw;
        Map<String, String> wrong = contradictions(values());
        if (!wrong.isEmpty()) {
            throw new ConfigException(String.join("; ", wrong.values()));
        }
    }

    /** What each setting alone cannot show: by the name of a setting, what is wrong with it beside others. */
    static Map<String, String> contradictions(Map<String, ?> values) {
        Map<String, String> wrong = new LinkedHashMap<>();
        if ((values.get(USERNAME) == null) != (values.get(PASSWORD) == null)) {
            wrong.put(values.get(USERNAME) == null ? USERNAME : PASSWORD,
                    USERNAME + " and " + PASSWORD + ": needed both or neither, got one of them");
        }
        boolean https = values.get(URL) instanceof List<?> urls
                && urls.stream().anyMatch(url -> url.toString().startsWith("https:"));
        for (String store : List.of(TRUSTSTORE, KEYSTORE)) {
            if (values.get(store) != null && !https) {
                wrong.put(store, store + ": needed an https:// URL in " + URL + " to go with it, got none");
            }
        }
        if (values.get(KEYSTORE) != null && values.get(KEYSTORE_PASSWORD) == null) {
            wrong.put(KEYSTORE_PASSWORD, KEYSTORE_PASSWORD + ": needed with " + KEYSTORE + ", got none");
        }
        if (values.get(BACKOFF_MS) instanceof Long first && values.get(BACKOFF_MS_MAX) instanceof Long longest
                && first > longest) {
            wrong.put(BACKOFF_MS_MAX, BACKOFF_MS_MAX + ": needed at least " + BACKOFF_MS + ", " + first
                    + ", got " + longest);
        }
        return wrong;
    }

    /** Base URLs without a slash at the end. */
    List<URI> urls() {
        List<URI> urls = new ArrayList<>();
        for (String url : getList(URL)) {
            urls.add(URI.create(url.replaceAll("/+$", "")));
        }
        return urls;
    }

    /** A secret's text, or null. */
    String secret(String name) {
        Password password = getPassword(name);
        return password == null ? null : password.value();
    }

    /** Connect's errors.tolerance: bad records may be passed over. */
    boolean toleratesBadRecords() {
        return "all".equals(raw.get(TOLERANCE));
    }

    /** Who writes, for log and metrics: the connector's name and the task's number. */
    String taskName() {
        return raw.getOrDefault(NAME, "sink") + "-" + raw.getOrDefault(TASK, "0");
    }

    private interface Check {
        boolean holds(Object value);
    }

    private static ConfigDef.Validator named(String needed, Check check) {
        return ConfigDef.LambdaValidator.with((name, value) -> {
            if (!check.holds(value)) {
                throw new ConfigException(name + ": needed " + needed + ", got '" + value + "'");
            }
        }, () -> needed);
    }

    private static boolean urls(Object value) {
        return value instanceof List<?> list && !list.isEmpty() && list.stream().allMatch(SinkSettings::url);
    }

    private static boolean url(Object value) {
        try {
            URI uri = URI.create(value.toString());
            return ("http".equals(uri.getScheme()) || "https".equals(uri.getScheme())) && uri.getHost() != null
                    && uri.getUserInfo() == null && uri.getQuery() == null && uri.getFragment() == null;
        } catch (IllegalArgumentException e) {
            return false;
        }
    }

    /** OpenSearch's own rule for a name: lower case, and none of the characters that mean something in a path. */
    private static boolean index(Object value) {
        return value instanceof String name && name.matches("[a-z0-9][a-z0-9._-]{0,254}");
    }
}
