package org.apache.kafka.common.test.junit;

import java.io.IOException;
import java.util.HashMap;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import java.util.TreeMap;
import java.util.concurrent.TimeUnit;
import java.util.function.Predicate;
import java.util.stream.Collectors;
import java.util.stream.IntStream;
import kafka.server.ControllerServer;
import kafka.server.KafkaBroker;
import kafka.server.KafkaConfig;
import oncelog.tests.Brokers;
import oncelog.tests.StandIns;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.admin.TopicDescription;
import org.apache.kafka.common.network.ListenerName;
import org.apache.kafka.common.security.auth.SecurityProtocol;
import org.apache.kafka.common.test.ClusterInstance;
import org.apache.kafka.common.test.JaasUtils;
import org.apache.kafka.common.test.api.ClusterConfig;
import org.apache.kafka.common.test.api.Type;
import org.apache.kafka.server.fault.FaultHandlerException;
import org.junit.jupiter.api.extension.AfterEachCallback;
import org.junit.jupiter.api.extension.BeforeEachCallback;
import org.junit.jupiter.api.extension.Extension;
import org.junit.jupiter.api.extension.TestTemplateInvocationContext;

/**
 * Runs Apache Kafka's own cluster tests against processes of oncelog. It takes the place of the class of this name in
 * Kafka's test kit, which makes brokers in this JVM.
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
        private static final String LOGIN = "org.apache.kafka.common.security.plain.PlainLoginModule required"
            + " username=\"%1$s\" password=\"%2$s\" user_%1$s=\"%2$s\" user_%3$s=\"%4$s\";";
        private final ClusterConfig config;
        private final Map<Integer, KafkaBroker> brokers = new TreeMap<>();
        private final Map<Integer, ControllerServer> controllers = new TreeMap<>();
        private Brokers processes;
        private StandIns standIns;
        private boolean isStarted;
        private boolean isStopped;

        OncelogCluster(ClusterConfig config) {
            this.config = config;
        }

        @Override
        public void start() {
            if (isStarted) {
                return;
            }
            isStarted = true;
            processes = new Brokers();
            standIns = new StandIns(processes);
            processes.setFeatures(config.features().entrySet().stream()
                .collect(Collectors.toMap(entry -> entry.getKey().featureName(), Map.Entry::getValue)));
            try {
                for (int id = 0; id < config.numBrokers(); id++) {
                    Map<String, Object> properties = properties(id);
                    processes.configure(id, properties);
                    brokers.put(id, standIns.broker(id, new KafkaConfig(properties, false)));
                    processes.start(id);
                }
            } catch (IOException failure) {
                throw new RuntimeException(failure);
            }
            controllers.put(3000, standIns.controller(brokers.get(0).config()));
            processes.await();
        }

        private Map<String, Object> properties(int id) {
            Map<String, Object> properties = new HashMap<>(config.serverProperties());
            String listener = config.brokerListenerName().value();
            properties.put("node.id", Integer.toString(id));
            properties.put("process.roles", "broker");
            properties.put("controller.quorum.voters", "3000@127.0.0.1:1");
            properties.putIfAbsent("controller.listener.names", "CONTROLLER");
            properties.putIfAbsent("listener.security.protocol.map", listener + ":" + config.brokerSecurityProtocol()
                + ",CONTROLLER:" + config.controllerSecurityProtocol());
            properties.putIfAbsent("listeners", listener + "://127.0.0.1:0");
            properties.putIfAbsent("inter.broker.listener.name", listener);
            properties.put("log.dirs", IntStream.range(0, config.numDisksPerBroker())
                .mapToObj(disk -> processes.directory().resolve("broker_" + id + "_data" + disk).toString())
                .collect(Collectors.joining(",")));
            if (config.brokerSecurityProtocol() == SecurityProtocol.SASL_PLAINTEXT) {
                properties.putIfAbsent("sasl.enabled.mechanisms", "PLAIN");
                properties.putIfAbsent("sasl.mechanism.inter.broker.protocol", "PLAIN");
                properties.put("listener.name." + listener.toLowerCase(Locale.ROOT) + ".plain.sasl.jaas.config",
                    String.format(LOGIN, JaasUtils.KAFKA_PLAIN_ADMIN, JaasUtils.KAFKA_PLAIN_ADMIN_PASSWORD,
                        JaasUtils.KAFKA_PLAIN_USER1, JaasUtils.KAFKA_PLAIN_USER1_PASSWORD));
            }
            properties.putAll(config.perServerOverrideProperties().getOrDefault(id, Map.of()));
            return properties;
        }

        @Override
        public void stop() {
            if (isStopped || !isStarted) {
                return;
            }
            isStopped = true;
            processes.close();
        }

        @Override
        public void shutdownBroker(int id) {
            processes.shutdown(id);
            processes.awaitEnd(id);
        }

        @Override
        public void startBroker(int id) {
            processes.start(id);
            processes.await();
        }

        @Override
        public void waitForReadyBrokers() {
            processes.await();
        }

        @Override
        public void waitTopicCreation(String topic, int partitions) throws InterruptedException {
            waitTopic(topic, found -> found.isPresent() && found.get().partitions().size() == partitions);
        }

        @Override
        public void waitTopicDeletion(String topic) throws InterruptedException {
            waitTopic(topic, Optional::isEmpty);
        }

        private void waitTopic(String topic, Predicate<Optional<TopicDescription>> condition)
            throws InterruptedException {
            long end = System.currentTimeMillis() + WAIT_MS;
            while (!condition.test(standIns.describe(topic))) {
                if (System.currentTimeMillis() > end) {
                    throw new AssertionError("topic " + topic);
                }
                TimeUnit.MILLISECONDS.sleep(POLL_MS);
            }
        }

        @Override
        public void createTopic(String name, int partitions, short replicas, Map<String, String> configs) {
            try {
                processes.admin().createTopics(List.of(new NewTopic(name, partitions, replicas).configs(configs)))
                    .all().get();
            } catch (Exception failure) {
                throw new RuntimeException(failure);
            }
        }

        @Override
        public List<Integer> brokerBoundPorts() {
            String listener = config.brokerListenerName().value();
            return brokers.keySet().stream().map(id -> processes.port(id, listener)).toList();
        }

        @Override
        public String bootstrapServers() {
            return brokerBoundPorts().stream().map(port -> "127.0.0.1:" + port).collect(Collectors.joining(","));
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
            return brokers.get(0).clusterId();
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
