package oncelog.tests;

import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Properties;
import java.util.TreeMap;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ExecutionException;
import java.util.stream.Collectors;
import kafka.cluster.Partition;
import kafka.log.LogManager;
import kafka.server.BrokerServer;
import kafka.server.ControllerServer;
import kafka.server.KafkaApis;
import kafka.server.KafkaConfig;
import kafka.server.ReplicaManager;
import org.apache.kafka.clients.admin.ListOffsetsResult.ListOffsetsResultInfo;
import org.apache.kafka.clients.admin.OffsetSpec;
import org.apache.kafka.clients.admin.ProducerState;
import org.apache.kafka.clients.admin.TopicDescription;
import org.apache.kafka.common.KafkaFuture;
import org.apache.kafka.common.Node;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.TopicPartitionInfo;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.acl.AclBinding;
import org.apache.kafka.common.acl.AclBindingFilter;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.errors.ApiException;
import org.apache.kafka.common.internals.Plugin;
import org.apache.kafka.common.network.ListenerName;
import org.apache.kafka.metadata.LeaderAndIsr;
import org.apache.kafka.metadata.MetadataCache;
import org.apache.kafka.server.authorizer.AclCreateResult;
import org.apache.kafka.server.authorizer.AclDeleteResult;
import org.apache.kafka.server.authorizer.Authorizer;
import org.apache.kafka.storage.internals.log.ProducerStateEntry;
import org.apache.kafka.storage.internals.log.UnifiedLog;
import org.mockito.Answers;
import org.mockito.Mockito;
import scala.Option;
import scala.collection.immutable.Nil$;

/** What tests take for a broker or controller in their own process, by what an administrator sees from outside. */
public final class StandIns {
    private final Brokers brokers;

    public StandIns(Brokers brokers) {
        this.brokers = brokers;
        StandInMetrics.register(brokers);
    }

    @SuppressWarnings("unchecked")
    public BrokerServer broker(int id, KafkaConfig config) {
        BrokerServer broker = Mockito.mock(BrokerServer.class, Answers.RETURNS_DEEP_STUBS);
        Mockito.when(broker.config()).thenReturn(config);
        Mockito.doAnswer(call -> start(id)).when(broker).startup();
        Mockito.doAnswer(call -> shutdown(id)).when(broker).shutdown();
        Mockito.doAnswer(call -> shutdown(id)).when(broker).shutdown(Mockito.any());
        Mockito.doAnswer(call -> awaitEnd(id)).when(broker).awaitShutdown();
        Mockito.when(broker.isShutdown()).thenAnswer(call -> !brokers.isAlive(id));
        Mockito.when(broker.clusterId()).thenAnswer(call -> brokers.admin().describeCluster().clusterId().get());
        Mockito.when(broker.boundPort(Mockito.any())).thenAnswer(call -> port(id, call.getArgument(0)));
        Mockito.when(broker.socketServer().boundPort(Mockito.any())).thenAnswer(call -> port(id, call.getArgument(0)));
        Mockito.when(broker.dataPlaneRequestProcessor().isConsumerGroupProtocolEnabled()).thenReturn(true);
        Mockito.when(broker.groupCoordinator().groupMetadataTopicConfigs()).thenReturn(compacted());
        Mockito.when(broker.metadataCache().getAliveBrokerNodes(Mockito.any()))
            .thenAnswer(call -> List.copyOf(brokers.admin().describeCluster().nodes().get()));
        Mockito.when(broker.metadataCache().hasAliveBroker(Mockito.anyInt())).thenAnswer(call -> brokers.admin()
            .describeCluster().nodes().get().stream().anyMatch(node -> node.id() == call.<Integer>getArgument(0)));
        Mockito.when(broker.metadataCache().contains(Mockito.anyString()))
            .thenAnswer(call -> describe(call.getArgument(0)).isPresent());
        Mockito.when(broker.metadataCache().numPartitions(Mockito.anyString()))
            .thenAnswer(call -> describe(call.getArgument(0)).map(topic -> topic.partitions().size()));
        Mockito.when(broker.metadataCache().getTopicId(Mockito.anyString()))
            .thenAnswer(call -> describe(call.getArgument(0)).map(TopicDescription::topicId).orElse(Uuid.ZERO_UUID));
        Mockito.when(broker.metadataCache().getLeaderAndIsr(Mockito.anyString(), Mockito.anyInt()))
            .thenAnswer(call -> leader(call.getArgument(0), call.getArgument(1)));
        Mockito.when(broker.replicaManager().onlinePartition(Mockito.any()))
            .thenAnswer(call -> partition(id, call.getArgument(0)));
        Mockito.when(broker.logManager().getLog(Mockito.any(), Mockito.anyBoolean()))
            .thenAnswer(call -> partition(id, call.getArgument(0)).map(found -> log(call.getArgument(0))));
        Mockito.when(broker.replicaManager().localLog(Mockito.any()))
            .thenAnswer(call -> partition(id, call.getArgument(0)).map(found -> log(call.getArgument(0))));
        KafkaApis requests = broker.dataPlaneRequestProcessor();
        MetadataCache cache = broker.metadataCache();
        Mockito.doReturn(cache).when(requests).metadataCache();
        ReplicaManager replicas = broker.replicaManager();
        LogManager logs = broker.logManager();
        Mockito.doReturn(logs).when(replicas).logManager();
        Mockito.when(broker.logManager().liveLogDirs()).thenReturn((scala.collection.Seq) Nil$.MODULE$);
        Mockito.when(broker.logManager().producerStateManagerConfig().producerIdExpirationMs())
            .thenAnswer(call -> Integer.parseInt(value(id, "producer.id.expiration.ms")));
        Mockito.doAnswer(call -> authorizer(config)).when(broker).authorizerPlugin();
        return broker;
    }

    public ControllerServer controller(KafkaConfig config) {
        ControllerServer controller = Mockito.mock(ControllerServer.class, Answers.RETURNS_DEEP_STUBS);
        Mockito.when(controller.config()).thenReturn(config);
        Mockito.when(controller.controller().findAllTopicIds(Mockito.any())).thenAnswer(call -> {
            Map<String, Uuid> ids = new TreeMap<>();
            brokers.admin().listTopics().listings().get().forEach(topic -> ids.put(topic.name(), topic.topicId()));
            return CompletableFuture.completedFuture(ids);
        });
        Mockito.doAnswer(call -> config == null ? Option.empty() : authorizer(config)).when(controller)
            .authorizerPlugin();
        return controller;
    }

    /** Waits, as Kafka's does: otherwise a test that restarts its brokers in turn has several down at a time. */
    private Object start(int id) {
        brokers.start(id);
        brokers.await();
        return null;
    }

    private Object shutdown(int id) {
        brokers.shutdown(id);
        return awaitEnd(id);
    }

    private Object awaitEnd(int id) {
        brokers.awaitEnd(id);
        return null;
    }

    private int port(int id, ListenerName listener) {
        return brokers.port(id, listener.value());
    }

    private static Properties compacted() {
        Properties properties = new Properties();
        properties.putAll(Map.of("cleanup.policy", "compact", "compression.type", "producer",
            "segment.bytes", "104857600"));
        return properties;
    }

    private String value(int id, String key) throws InterruptedException, ExecutionException {
        ConfigResource broker = new ConfigResource(ConfigResource.Type.BROKER, Integer.toString(id));
        return brokers.admin().describeConfigs(List.of(broker)).values().get(broker).get().get(key).value();
    }

    public Optional<TopicDescription> describe(String topic) {
        try {
            return Optional.of(brokers.admin().describeTopics(List.of(topic)).topicNameValues().get(topic).get());
        } catch (InterruptedException | ExecutionException unknown) {
            return Optional.empty();
        }
    }

    private Optional<LeaderAndIsr> leader(String topic, int partition) {
        return describe(topic).filter(found -> partition < found.partitions().size()).map(found -> {
            TopicPartitionInfo info = found.partitions().get(partition);
            Node leader = info.leader();
            return new LeaderAndIsr(leader == null ? -1 : leader.id(), info.isr().stream().map(Node::id).toList());
        });
    }

    private Option<Partition> partition(int id, TopicPartition name) {
        Optional<LeaderAndIsr> found = leader(name.topic(), name.partition());
        if (found.isEmpty() || !found.get().isr().contains(id)) {
            return Option.empty();
        }
        Partition partition = Mockito.mock(Partition.class, Answers.RETURNS_DEEP_STUBS);
        boolean isLeader = found.get().leader() == id;
        Mockito.doReturn(isLeader ? Option.apply(log(name)) : Option.empty()).when(partition).leaderLogIfLocal();
        Mockito.doReturn(isLeader ? Option.apply(id) : Option.empty()).when(partition).leaderReplicaIdOpt();
        Mockito.doReturn(isLeader).when(partition).isLeader();
        Mockito.when(partition.getLeaderEpoch()).thenAnswer(call -> list(name, OffsetSpec.latest()).leaderEpoch().get());
        return Option.apply(partition);
    }

    /** A leader's log, as its clients see it. */
    private UnifiedLog log(TopicPartition name) {
        UnifiedLog log = Mockito.mock(UnifiedLog.class, Answers.RETURNS_DEEP_STUBS);
        Mockito.when(log.logStartOffset()).thenAnswer(call -> offset(name, OffsetSpec.earliest()));
        Mockito.when(log.highWatermark()).thenAnswer(call -> offset(name, OffsetSpec.latest()));
        Mockito.when(log.logEndOffset()).thenAnswer(call -> offset(name, OffsetSpec.latest()));
        Mockito.when(log.producerStateManager().activeProducers()).thenAnswer(call -> producers(name));
        return log;
    }

    private long offset(TopicPartition name, OffsetSpec spec) throws Exception {
        return list(name, spec).offset();
    }

    private ListOffsetsResultInfo list(TopicPartition name, OffsetSpec spec) throws Exception {
        return brokers.admin().listOffsets(Map.of(name, spec)).partitionResult(name).get();
    }

    private Map<Long, ProducerStateEntry> producers(TopicPartition name) throws Exception {
        Map<Long, ProducerStateEntry> producers = new TreeMap<>();
        for (ProducerState state : brokers.admin().describeProducers(List.of(name)).partitionResult(name).get()
            .activeProducers()) {
            ProducerStateEntry entry = Mockito.mock(ProducerStateEntry.class);
            Mockito.when(entry.producerId()).thenReturn(state.producerId());
            Mockito.when(entry.producerEpoch()).thenReturn((short) state.producerEpoch());
            producers.put(state.producerId(), entry);
        }
        return producers;
    }

    private Option<Plugin<Authorizer>> authorizer(KafkaConfig config) {
        if (config.getString("authorizer.class.name").isEmpty()) {
            return Option.empty();
        }
        Authorizer authorizer = Mockito.mock(Authorizer.class);
        Mockito.doAnswer(call -> call.<List<AclBinding>>getArgument(1).stream().map(this::create)
            .collect(Collectors.toList())).when(authorizer).createAcls(Mockito.any(), Mockito.any());
        Mockito.doAnswer(call -> call.<List<AclBindingFilter>>getArgument(1).stream().map(this::delete)
            .collect(Collectors.toList())).when(authorizer).deleteAcls(Mockito.any(), Mockito.any());
        Mockito.doAnswer(call -> brokers.admin().describeAcls(call.getArgument(0)).values().get()).when(authorizer)
            .acls(Mockito.any());
        return Option.apply(Plugin.wrapInstance(authorizer, null, "authorizer.class.name"));
    }

    private CompletableFuture<AclCreateResult> create(AclBinding binding) {
        return CompletableFuture.completedFuture(failure(brokers.admin().createAcls(List.of(binding)).all())
            .map(AclCreateResult::new).orElse(AclCreateResult.SUCCESS));
    }

    private CompletableFuture<AclDeleteResult> delete(AclBindingFilter filter) {
        return CompletableFuture.completedFuture(failure(brokers.admin().deleteAcls(List.of(filter)).all())
            .map(AclDeleteResult::new).orElseGet(() -> new AclDeleteResult(List.of())));
    }

    private static Optional<ApiException> failure(KafkaFuture<?> future) {
        try {
            future.get();
            return Optional.empty();
        } catch (ExecutionException failure) {
            return Optional.of((ApiException) failure.getCause());
        } catch (InterruptedException failure) {
            throw new RuntimeException(failure);
        }
    }
}
