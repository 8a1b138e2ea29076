import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Collection;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CountDownLatch;
import org.opensearch.analysis.common.CommonAnalysisPlugin;
import org.opensearch.common.logging.LogConfigurator;
import org.opensearch.common.settings.Settings;
import org.opensearch.env.Environment;
import org.opensearch.node.InternalSettingsPreparer;
import org.opensearch.node.Node;
import org.opensearch.painless.PainlessPlugin;
import org.opensearch.plugins.Plugin;
import org.opensearch.transport.Netty4Plugin;

/**
 * One OpenSearch node from the jars on Maven Central, which hold no launcher and no installed modules: the three that a
 * search index needs are named here. Arguments: the home folder, then settings as {@code key=value}.
 *
 * <p>SIGTERM closes the node, which syncs and releases its folder before the process ends.
 */
public final class SearchNode {
  private static final String NAME = "headrace-1";

  /** The constructor that takes plugins from the class path is protected. */
  private static final class LocalNode extends Node {
    LocalNode(Environment environment, Collection<Class<? extends Plugin>> plugins) {
      super(environment, plugins, false);
    }
  }

  private SearchNode() {}

  public static void main(String[] arguments) throws Exception {
    Path home = Path.of(arguments[0]);
    for (String folder : List.of("config", "plugins", "modules")) {
      Files.createDirectories(home.resolve(folder));
    }
    Settings.Builder settings =
        Settings.builder()
            .put("path.home", home.toString())
            .put("node.name", NAME)
            .put("transport.type", "netty4")
            .put("http.type", "netty4");
    for (int i = 1; i < arguments.length; i++) {
      String[] pair = arguments[i].split("=", 2);
      settings.put(pair[0], pair[1]);
    }
    LogConfigurator.setNodeName(NAME);
    Environment environment =
        InternalSettingsPreparer.prepareEnvironment(settings.build(), Map.of(), home.resolve("config"), () -> NAME);
    Node node =
        new LocalNode(environment, List.of(Netty4Plugin.class, CommonAnalysisPlugin.class, PainlessPlugin.class));
    CountDownLatch closed = new CountDownLatch(1);
    Runtime.getRuntime().addShutdownHook(new Thread(() -> close(node, closed), "close-on-sigterm"));
    try {
      node.start();
    } catch (Exception error) { // its threads would keep the process alive
      error.printStackTrace();
      System.exit(1);
    }
    closed.await();
  }

  private static void close(Node node, CountDownLatch closed) {
    try {
      node.close();
    } catch (java.io.IOException error) {
      System.err.println("the node did not close cleanly: " + error);
    } finally {
      closed.countDown();
    }
  }
}
