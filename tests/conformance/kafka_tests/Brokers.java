package oncelog.tests;

import java.io.File;
import java.io.IOException;
import java.io.InputStream;
import java.io.Writer;
import java.net.InetSocketAddress;
import java.net.ServerSocket;
import java.net.Socket;
import java.net.URL;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Comparator;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.TreeMap;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.TimeUnit;
import java.util.stream.Collectors;
import java.util.stream.Stream;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.AdminClientConfig;
import org.apache.kafka.clients.admin.FeatureUpdate;
import org.apache.kafka.clients.admin.UpdateFeaturesOptions;

/**
 * The processes of one cluster of oncelog. `oncelog.command` is the command line up to `serve`. A process is started
 * without waiting for it; `await` waits for all. An administrator of our own comes in by a listener of our own, so that
 * a cluster may have any security.
 */
public final class Brokers {
    private static final long WAIT_MS = 60_000;
    private static final long POLL_MS = 20;
    private static final String OURS = "TESTKIT";
    private static final List<String> COMMAND = List.of(System.getProperty("oncelog.command").split(" "));
    private final Path directory;
    private final Map<Integer, Properties> properties = new TreeMap<>();
    private final Map<Integer, Integer> ourPorts = new TreeMap<>();
    private final Map<Integer, Integer> metricsPorts = new TreeMap<>();
    private final Map<Integer, Map<String, Integer>> ports = new TreeMap<>();
    private final Map<Integer, Process> processes = new TreeMap<>();
    private Map<String, Short> features = Map.of();
    private Admin admin;
    private boolean isReady;

    public Brokers() {
        try {
            directory = Files.createTempDirectory("own-tests-");
        } catch (IOException failure) {
            throw new RuntimeException(failure);
        }
    }

    public Path directory() {
        return directory;
    }

    /** Sets what `start` gives to a broker: `listeners` may name port 0, and of several log directories one is used. */
    public synchronized void configure(int id, Map<?, ?> given) throws IOException {
        Properties all = new Properties();
        given.forEach((key, value) -> all.setProperty(key.toString(), value.toString()));
        Map<String, Integer> chosen = ports.computeIfAbsent(id, key -> new TreeMap<>());
        StringBuilder listeners = new StringBuilder();
        for (String listener : all.getProperty("listeners", "PLAINTEXT://127.0.0.1:0").split(",")) {
            String name = listener.substring(0, listener.indexOf(':'));
            if (!chosen.containsKey(name)) {
                chosen.put(name, freePort());
            }
            String host = listener.substring(listener.indexOf("//") + 2, listener.lastIndexOf(':'));
            listeners.append(name).append("://").append(host).append(':').append(chosen.get(name)).append(',');
        }
        ourPorts.putIfAbsent(id, freePort());
        metricsPorts.putIfAbsent(id, freePort());
        listeners.append(OURS).append("://127.0.0.1:").append(ourPorts.get(id));
        all.setProperty("listeners", listeners.toString());
        all.setProperty("advertised.listeners", listeners.toString());
        String protocols = all.getProperty("listener.security.protocol.map", "PLAINTEXT:PLAINTEXT");
        all.setProperty("listener.security.protocol.map", protocols + "," + OURS + ":PLAINTEXT");
        all.setProperty("log.dirs", all.getProperty("log.dirs", all.getProperty("log.dir")).split(",")[0]);
        all.setProperty("node.id", Integer.toString(id));
        all.setProperty("oncelog.tree.path", directory.resolve("cluster.db").toString());
        properties.put(id, all);
    }

    public void setFeatures(Map<String, Short> levels) {
        features = levels;
    }

    public synchronized void start(int id) {
        try {
            if (processes.containsKey(id)) {
                processes.get(id).waitFor();
            }
            Path file = directory.resolve("broker-" + id + ".properties");
            try (Writer writer = Files.newBufferedWriter(file)) {
                properties.get(id).store(writer, null);
            }
            List<String> command = new ArrayList<>(COMMAND);
            command.addAll(List.of("serve", "--config", file.toString()));
            command.addAll(List.of("--http", "127.0.0.1:" + metricsPorts.get(id)));
            File log = directory.resolve("broker-" + id + ".log").toFile();
            Process process = new ProcessBuilder(command).redirectErrorStream(true)
                .redirectOutput(ProcessBuilder.Redirect.appendTo(log)).start();
            Runtime.getRuntime().addShutdownHook(new Thread(process::destroyForcibly));
            processes.put(id, process);
            isReady = false;
        } catch (IOException | InterruptedException failure) {
            throw new RuntimeException(failure);
        }
    }

    private static int freePort() throws IOException {
        try (ServerSocket socket = new ServerSocket(0)) {
            return socket.getLocalPort();
        }
    }

    /** Waits until every process that lives is a broker of the cluster. */
    public synchronized void await() {
        if (isReady) {
            return;
        }
        try {
            long end = System.currentTimeMillis() + WAIT_MS;
            List<Integer> living = processes.keySet().stream().filter(this::isAlive).toList();
            for (int id : living) {
                awaitListening(id, end);
            }
            boolean isFirst = admin == null;
            if (isFirst) {
                admin = Admin.create(Map.of(AdminClientConfig.BOOTSTRAP_SERVERS_CONFIG, ourBootstrap()));
            }
            while (admin.describeCluster().nodes().get().size() < living.size()) {
                if (System.currentTimeMillis() > end) {
                    throw new AssertionError("not all brokers are there: " + logs());
                }
                TimeUnit.MILLISECONDS.sleep(POLL_MS);
            }
            if (isFirst && !features.isEmpty()) {
                applyFeatures();
            }
            isReady = true;
        } catch (Exception failure) {
            throw new RuntimeException(failure);
        }
    }

    private void applyFeatures() throws InterruptedException, ExecutionException {
        Map<String, FeatureUpdate> updates = features.entrySet().stream().collect(Collectors.toMap(Map.Entry::getKey,
            entry -> new FeatureUpdate(entry.getValue(), FeatureUpdate.UpgradeType.UNSAFE_DOWNGRADE)));
        admin.updateFeatures(updates, new UpdateFeaturesOptions()).all().get();
    }

    private void awaitListening(int id, long end) throws Exception {
        while (true) {
            try (Socket socket = new Socket()) {
                socket.connect(new InetSocketAddress("127.0.0.1", ourPorts.get(id)), 1000);
                return;
            } catch (IOException failure) {
                if (!processes.get(id).isAlive() || System.currentTimeMillis() > end) {
                    throw new IllegalStateException("broker " + id + " does not listen: " + logs(), failure);
                }
                TimeUnit.MILLISECONDS.sleep(POLL_MS);
            }
        }
    }

    private String logs() throws IOException {
        StringBuilder text = new StringBuilder();
        for (int id : processes.keySet()) {
            text.append(Files.readString(directory.resolve("broker-" + id + ".log")));
        }
        return text.toString();
    }

    private String ourBootstrap() {
        return ourPorts.values().stream().map(port -> "127.0.0.1:" + port).collect(Collectors.joining(","));
    }

    public Admin admin() {
        await();
        return admin;
    }

    public int port(int id, String listener) {
        await();
        return ports.get(id).get(listener);
    }

    public boolean isAlive(int id) {
        return processes.containsKey(id) && processes.get(id).isAlive();
    }

    /** The sum of a sample, a metric with its labels, over the brokers that live. */
    public double metric(String sample) throws IOException {
        double sum = 0;
        for (int id : processes.keySet().stream().filter(this::isAlive).toList()) {
            try (InputStream page = new URL("http://127.0.0.1:" + metricsPorts.get(id) + "/metrics").openStream()) {
                sum += new String(page.readAllBytes(), StandardCharsets.UTF_8).lines()
                    .filter(line -> line.startsWith(sample + " "))
                    .mapToDouble(line -> Double.parseDouble(line.substring(sample.length() + 1))).sum();
            }
        }
        return sum;
    }

    /** Ends a broker as a user would, without waiting for it. */
    public void shutdown(int id) {
        if (processes.containsKey(id)) {
            processes.get(id).destroy();
        }
    }

    public void awaitEnd(int id) {
        try {
            if (processes.containsKey(id)) {
                processes.get(id).waitFor();
            }
        } catch (InterruptedException failure) {
            throw new RuntimeException(failure);
        }
    }

    public synchronized void close() {
        if (admin != null) {
            admin.close();
        }
        processes.values().forEach(Process::destroyForcibly);
        processes.keySet().forEach(this::awaitEnd);
        try (Stream<Path> paths = Files.walk(directory)) {
            paths.sorted(Comparator.reverseOrder()).forEach(path -> path.toFile().delete());
        } catch (IOException failure) {
            throw new RuntimeException(failure);
        }
    }
}
