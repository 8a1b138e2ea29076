package io.headrace.sink;

import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import org.apache.kafka.common.config.Config;
import org.apache.kafka.common.config.ConfigDef;
import org.apache.kafka.common.config.ConfigValue;
import org.apache.kafka.connect.connector.Task;
import org.apache.kafka.connect.sink.SinkConnector;

/** Kafka Connect's sink to an OpenSearch index: checks the settings and hands them to the tasks, which do the work. */
public final class OpenSearchSink extends SinkConnector {
    private Map<String, String> settings = Map.of();

    @Override
    public String version() {
        return version(OpenSearchSink.class);
    }

    @Override
    public ConfigDef config() {
        return SinkSettings.DEFINITION;
    }

    @Override
    public Config validate(Map<String, String> given) {
        Config config = super.validate(given);
        Map<String, Object> values = new HashMap<>();
        config.configValues().forEach(value -> values.put(value.name(), value.value()));
        Map<String, String> wrong = SinkSettings.contradictions(values);
        for (ConfigValue value : config.configValues()) {
            if (wrong.containsKey(value.name())) {
                value.addErrorMessage(wrong.get(value.name()));
            }
        }
        return config;
    }

    @Override
    public void start(Map<String, String> given) {
        new SinkSettings(given); // a connector that cannot work says so before any task is made
        settings = Map.copyOf(given);
    }

    @Override
    public Class<? extends Task> taskClass() {
        return OpenSearchSinkTask.class;
    }

    @Override
    public List<Map<String, String>> taskConfigs(int tasksMax) {
        List<Map<String, String>> tasks = new ArrayList<>();
        for (int number = 0; number < tasksMax; number++) {
            Map<String, String> task = new HashMap<>(settings);
            task.put(SinkSettings.TASK, Integer.toString(number));
            tasks.add(task);
        }
        return tasks;
    }

    @Override
    public void stop() {
        settings = Map.of();
    }

    /** The jar's version, as its manifest says. */
    static String version(Class<?> owner) {
        String version = owner.getPackage().getImplementationVersion();
        return version == null ? "unpackaged" : version;
    }
}
