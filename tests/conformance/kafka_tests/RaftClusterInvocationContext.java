package org.apache.kafka.common.test.junit;

import java.io.File;
import java.io.IOException;
import java.net.InetSocketAddress;
import java.net.ServerSocket;
import java.net.Socket;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Comparator;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Properties;
import java.util.Set;
import java.util.TreeMap;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;
import java.util.stream.Collectors;
import java.util.stream.Stream;
import kafka.server.BrokerServer;
import kafka.server.ControllerServer;
import kafka.server.KafkaBroker;
import kafka.server.KafkaConfig;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.AdminClientConfig;
import org.apache.kafka.clients.admin.FeatureUpdate;
import org.apache.kafka.clients.admin.TopicDescription;
import org.apache.kafka.clients.admin.UpdateFeaturesOptions;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.Node;
import org.apache.kafka.common.TopicPartitionInfo;
import org.apache.kafka.common.network.ListenerName;
import org.apache.kafka.common.test.ClusterInstance;
import org.apache.kafka.common.test.api.ClusterConfig;
import org.apache.kafka.common.test.api.Type;
import org.apache.kafka.metadata.LeaderAndIsr;
import org.apache.kafka.server.fault.FaultHandlerException;
import org.junit.jupiter.api.extension.BeforeEachCallback;
import org.junit.jupiter.api.extension.AfterEachCallback;
import org.junit.jupiter.api.extension.Extension;
import org.junit.jupiter.api.extension.TestTemplateInvocationContext;
import org.mockito.Answers;
import org.mockito.Mockito;

/**
 * Runs Apache Kafka's own cluster tests against processes of oncelog. It takes the place of the class of this name in
 * Kafka's test kit, which makes brokers in this JVM. `oncelog.command` is the command line up to `serve`.
 */
public class RaftClusterInvocationContext implements TestTemplateInvocationContext {
    private final String name;
    private final ClusterConfig config;

    public RaftClusterInvocationContext(String name, ClusterConfig config, boolean isCombined) {
        this.name = name;
        this.config = config;
    }

    @Override
    public String getDisplayName(int index) {
        return String.format("%s [%d] oncelog, %s", name, index, String.join(",", config.displayTags()));
    }

    @Override
    public List<Extension> getAdditionalExtensions() {
        OncelogCluster cluster = new OncelogCluster(config);
        return List.of(
            (BeforeEachCallback) context -> {
                if (config.isAutoStart()) {
                    cluster.start();
                }
            },
            (AfterEachCallback) context -> cluster.stop(),
            new ClusterInstanceParameterResolver(cluster));
    }

    private static final class OncelogCluster implements ClusterInstance {
        private static final long WAIT_MS = 60_000;
        private static final long POLL_MS = 20;
        private static final List<String> COMMAND = List.of(System.getProperty("oncelog.command").split(" "));
        private final ClusterConfig config;
        private final Map<Integer, Integer> ports = new TreeMap<>();
        private final Map<Integer, Process> processes = new TreeMap<>();
        private final Map<Integer, KafkaBroker> brokers = new TreeMap<>();
        private final Map<Integer, ControllerServer> controllers = new TreeMap<>();
        private Path directory;
        private Admin admin;
        private boolean isStarted;
        private boolean isStopped;

        OncelogCluster(ClusterConfig config) {
            this.config = config;
        }

        // The processes

        @Override
        public void start() {
            if (isStarted) {
                return;
            }
            isStarted = true;
            try {
                directory = Files.createTempDirectory("own-tests-");
                for (int id = 0; id < config.numBrokers(); id++) {
                    ports.put(id, freePort());
                }
                for (int id : ports.keySet()) {
                    launch(id);
                }
                for (int id : ports.keySet()) {
                    awaitListening(id);
                }
                admin = Admin.create(Map.of(AdminClientConfig.BOOTSTRAP_SERVERS_CONFIG, bootstrapServers()));
                applyFeatures();
                for (int id : ports.keySet()) {
                    brokers.put(id, standIn(id));
                }
                controllers.put(3000, controllerStandIn());
                waitForReadyBrokers();
            } catch (Exception failure) {
                throw new RuntimeException(failure);
            }
        }

        private void launch(int id) throws IOException {
            List<String> command = new ArrayList<>(COMMAND);
            command.addAll(List.of("serve", "--data-dir", directory.resolve("data-" + id).toString()));
            command.addAll(List.of("--listen", "127.0.0.1:" + ports.get(id)));
            properties(id).forEach((key, value) -> command.addAll(List.of("-o", key + "=" + value)));
            File log = directory.resolve("broker-" + id + ".log").toFile();
            Process process = new ProcessBuilder(command).redirectErrorStream(true)
                .redirectOutput(ProcessBuilder.Redirect.appendTo(log)).start();
            processes.put(id, process);
            Runtime.getRuntime().addShutdownHook(new Thread(process::destroyForcibly));
        }

        private Map<String, String> properties(int id) {
            Map<String, String> properties = new LinkedHashMap<>(config.serverProperties());
            properties.putAll(config.perServerOverrideProperties().getOrDefault(id, Map.of()));
            properties.put("node.id", Integer.toString(id));
            if (config.numBrokers() > 1) {
                properties.put("oncelog.tree.path", directory.resolve("cluster.db").toString());
            }
            return properties;
        }

        private static int freePort() throws IOException {
            try (ServerSocket socket = new ServerSocket(0)) {
                return socket.getLocalPort();
            }
        }

        private void awaitListening(int id) throws Exception {
            long end = System.currentTimeMillis() + WAIT_MS;
            while (true) {
                try (Socket socket = new Socket()) {
                    socket.connect(new InetSocketAddress("127.0.0.1", ports.get(id)), 1000);
                    return;
                } catch (IOException failure) {
                    if (!processes.get(id).isAlive() || System.currentTimeMillis() > end) {
                        String log = Files.readString(directory.resolve("broker-" + id + ".log"));
                        throw new IllegalStateException("broker " + id + " does not listen: " + log, failure);
                    }
                    TimeUnit.MILLISECONDS.sleep(POLL_MS);
                }
            }
        }

        private void applyFeatures() throws Exception {
            Map<String, FeatureUpdate> updates = config.features().entrySet().stream().collect(Collectors.toMap(
                entry -> entry.getKey().featureName(),
                entry -> new FeatureUpdate(entry.getValue(), FeatureUpdate.UpgradeType.UNSAFE_DOWNGRADE)));
            if (!updates.isEmpty()) {
                admin.updateFeatures(updates, new UpdateFeaturesOptions()).all().get();
            }
        }

        @Override
        public void stop() {
            if (isStopped || !isStarted) {
                return;
            }
            isStopped = true;
            if (admin != null) {
                admin.close();
            }
            processes.values().forEach(Process::destroyForcibly);
            try {
                for (Process process : processes.values()) {
                    process.waitFor();
                }
                try (Stream<Path> paths = Files.walk(directory)) {
                    paths.sorted(Comparator.reverseOrder()).forEach(path -> path.toFile().delete());
                }
            } catch (Exception failure) {
                throw new RuntimeException(failure);
            }
        }

        @Override
        public void shutdownBroker(int id) {
            processes.get(id).destroy();
        }

        @Override
        public void startBroker(int id) {
            try {
                processes.get(id).waitFor();
                launch(id);
                awaitListening(id);
            } catch (Exception failure) {
                throw new RuntimeException(failure);
            }
        }

        // Stand-ins for the objects of a broker in this JVM

        private KafkaBroker standIn(int id) {
            Properties properties = new Properties();
            properties.putAll(config.serverProperties());
            properties.putAll(Map.of("node.id", Integer.toString(id), "process.roles", "broker",
                "controller.listener.names", "CONTROLLER", "controller.quorum.voters", "3000@127.0.0.1:1",
                "listeners", "PLAINTEXT://127.0.0.1:" + ports.get(id)));
            BrokerServer broker = Mockito.mock(BrokerServer.class, Answers.RETURNS_DEEP_STUBS);
            Mockito.when(broker.config()).thenReturn(KafkaConfig.fromProps(properties));
            Mockito.doAnswer(call -> processes.get(id).waitFor()).when(broker).awaitShutdown();
            Mockito.when(broker.isShutdown()).thenAnswer(call -> !processes.get(id).isAlive());
            Mockito.when(broker.socketServer().boundPort(Mockito.any())).thenReturn(ports.get(id));
            Mockito.when(broker.boundPort(Mockito.any())).thenReturn(ports.get(id));
            Mockito.when(broker.metadataCache().getAliveBrokerNodes(Mockito.any()))
                .thenAnswer(call -> List.copyOf(admin.describeCluster().nodes().get()));
            Mockito.when(broker.metadataCache().numPartitions(Mockito.anyString()))
                .thenAnswer(call -> describe(call.getArgument(0)).map(topic -> topic.partitions().size()));
            Mockito.when(broker.metadataCache().getLeaderAndIsr(Mockito.anyString(), Mockito.anyInt()))
                .thenAnswer(call -> leader(call.getArgument(0), call.getArgument(1)));
            return broker;
        }

        private Optional<TopicDescription> describe(String topic) {
            try {
                return Optional.of(admin.describeTopics(List.of(topic)).topicNameValues().get(topic).get());
            } catch (Exception unknown) {
                return Optional.empty();
            }
        }

        private Optional<LeaderAndIsr> leader(String topic, int partition) {
            return describe(topic).map(found -> {
                TopicPartitionInfo info = found.partitions().get(partition);
                Node leader = info.leader();
                return new LeaderAndIsr(leader == null ? -1 : leader.id(), info.isr().stream().map(Node::id).toList());
            });
        }

        private ControllerServer controllerStandIn() {
            ControllerServer controller = Mockito.mock(ControllerServer.class, Answers.RETURNS_DEEP_STUBS);
            Mockito.when(controller.controller().findAllTopicIds(Mockito.any())).thenAnswer(call -> {
                Map<String, Uuid> ids = new TreeMap<>();
                admin.listTopics().listings().get().forEach(topic -> ids.put(topic.name(), topic.topicId()));
                return CompletableFuture.completedFuture(ids);
            });
            return controller;
        }

        // The rest of the interface

        @Override
        public void waitForReadyBrokers() throws InterruptedException {
            long end = System.currentTimeMillis() + WAIT_MS;
            while (System.currentTimeMillis() < end) {
                try {
                    if (admin.describeCluster().nodes().get().size() == ports.size()) {
                        return;
                    }
                } catch (java.util.concurrent.ExecutionException failure) {
                    // asked again until the time is over
                }
                TimeUnit.MILLISECONDS.sleep(POLL_MS);
            }
            throw new AssertionError("not all brokers are there");
        }

        @Override
        public void createTopic(String name, int partitions, short replicas, Map<String, String> configs) {
            try {
                admin.createTopics(List.of(new org.apache.kafka.clients.admin.NewTopic(name, partitions, replicas)
                    .configs(configs))).all().get();
            } catch (Exception failure) {
                throw new RuntimeException(failure);
            }
        }

        @Override
        public void waitTopicCreation(String topic, int partitions) throws InterruptedException {
            waitTopic(topic, found -> found.isPresent() && found.get().partitions().size() == partitions);
        }

        @Override
        public void waitTopicDeletion(String topic) throws InterruptedException {
            waitTopic(topic, Optional::isEmpty);
        }

        private void waitTopic(String topic, java.util.function.Predicate<Optional<TopicDescription>> condition)
            throws InterruptedException {
            long end = System.currentTimeMillis() + WAIT_MS;
            while (!condition.test(describe(topic))) {
                if (System.currentTimeMillis() > end) {
                    throw new AssertionError("topic " + topic);
                }
                TimeUnit.MILLISECONDS.sleep(POLL_MS);
            }
        }

        @Override
        public List<Integer> brokerBoundPorts() {
            return List.copyOf(ports.values());
        }

        @Override
        public String bootstrapServers() {
            return ports.values().stream().map(port -> "127.0.0.1:" + port).collect(Collectors.joining(","));
        }

        @Override
        public Type type() {
            return Type.KRAFT;
        }

        @Override
        public Map<Integer, KafkaBroker> brokers() {
            return brokers;
        }

        @Override
        public Map<Integer, KafkaBroker> aliveBrokers() {
            return brokers.entrySet().stream().filter(entry -> processes.get(entry.getKey()).isAlive())
                .collect(Collectors.toMap(Map.Entry::getKey, Map.Entry::getValue));
        }

        @Override
        public Map<Integer, ControllerServer> controllers() {
            return controllers;
        }

        @Override
        public Set<Integer> controllerIds() {
            return controllers.keySet();
        }

        @Override
        public ClusterConfig config() {
            return config;
        }

        @Override
        public ListenerName clientListener() {
            return config.brokerListenerName();
        }

        @Override
        public ListenerName controllerListenerName() {
            return config.controllerListenerName();
        }

        @Override
        public String bootstrapControllers() {
            throw new UnsupportedOperationException("there are no controllers");
        }

        @Override
        public String clusterId() {
            try {
                return admin.describeCluster().clusterId().get();
            } catch (Exception failure) {
                throw new RuntimeException(failure);
            }
        }

        @Override
        public Optional<FaultHandlerException> firstFatalException() {
            return Optional.empty();
        }

        @Override
        public Optional<FaultHandlerException> firstNonFatalException() {
            return Optional.empty();
        }

        @Override
        public boolean started() {
            return isStarted;
        }

        @Override
        public boolean stopped() {
            return isStopped;
        }
    }
}
