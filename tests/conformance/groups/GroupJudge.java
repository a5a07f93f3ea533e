package org.apache.kafka.coordinator.group;

import com.fasterxml.jackson.databind.*;
import com.fasterxml.jackson.databind.node.*;
import java.io.*;
import java.util.*;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.errors.ApiException;
import org.apache.kafka.common.message.*;
import org.apache.kafka.common.protocol.Errors;
import org.apache.kafka.coordinator.common.runtime.*;
import org.apache.kafka.image.*;

/** Apache Kafka's GroupMetadataManager in virtual time: a line of JSON in, a line of JSON out. */
public class GroupJudge {
  static final ObjectMapper JSON = new ObjectMapper();
  static final GroupCoordinatorRecordSerde SERDE = new GroupCoordinatorRecordSerde();
  static GroupMetadataManagerTestContext context;
  static long version;
  static Map<String, Object[]> topics = new TreeMap<>();

  static CoordinatorMetadataImage image() {
    var builder = new MetadataImageBuilder();
    topics.forEach((name, spec) -> builder.addTopic((Uuid) spec[0], name, (Integer) spec[1]));
    return builder.addRacks().buildCoordinatorMetadataImage(version);
  }

  static void records(ObjectNode out, List<CoordinatorRecord> records) {
    ArrayNode array = out.putArray("records");
    for (CoordinatorRecord record : records) {
      ArrayNode pair = array.addArray();
      pair.add(HexFormat.of().formatHex(SERDE.serializeKey(record)));
      byte[] value = SERDE.serializeValue(record);
      if (value == null) pair.addNull(); else pair.add(HexFormat.of().formatHex(value));
    }
  }

  static ObjectNode run(JsonNode in) throws Exception {
    ObjectNode out = JSON.createObjectNode();
    switch (in.get("op").asText()) {
      case "new" -> {
        topics.clear(); version = 1;
        in.get("topics").fields().forEachRemaining(e -> topics.put(e.getKey(), new Object[] {uuid(e.getValue().get(0).asText()), e.getValue().get(1).asInt()}));
        context = new GroupMetadataManagerTestContext.Builder().withMetadataImage(image())
            .withConfig(GroupCoordinatorConfig.CONSUMER_GROUP_ASSIGNMENT_INTERVAL_MS_CONFIG, in.get("interval").asInt())
            .withConfig(GroupCoordinatorConfig.CONSUMER_GROUP_MIN_ASSIGNMENT_INTERVAL_MS_CONFIG, 0)
            .withConfig(GroupCoordinatorConfig.CONSUMER_GROUP_MAX_SIZE_CONFIG, in.get("max_size").asInt())
            .withConfig(GroupCoordinatorConfig.CONSUMER_GROUP_ASSIGNORS_CONFIG, List.of(
                new org.apache.kafka.coordinator.group.assignor.RangeAssignor(), new org.apache.kafka.coordinator.group.assignor.UniformAssignor()))
            .build();
      }
      case "topics" -> {
        topics.clear(); version++;
        in.get("topics").fields().forEachRemaining(e -> topics.put(e.getKey(), new Object[] {uuid(e.getValue().get(0).asText()), e.getValue().get(1).asInt()}));
        var image = image();
        context.groupMetadataManager.onMetadataUpdate(CoordinatorMetadataDelta.EMPTY, image);
        var cache = GroupMetadataManager.class.getDeclaredField("topicHashCache"); cache.setAccessible(true); ((Map<?, ?>) cache.get(context.groupMetadataManager)).clear();
        if (in.get("new").asBoolean()) { var last = GroupMetadataManager.class.getDeclaredField("lastMetadataImageWithNewTopics"); last.setAccessible(true); last.setLong(context.groupMetadataManager, version); }
        refresh();
      }
      case "sleep" -> {
        ArrayNode timers = out.putArray("timers");
        for (var expired : context.sleep(in.get("ms").asLong())) {
          ObjectNode timer = timers.addObject();
          timer.put("key", expired.key());
          records(timer, expired.result().records());
        }
      }
      case "tasks" -> {
        List<CoordinatorRecord> all = new ArrayList<>();
        for (var result : context.processTasks()) all.addAll(result.result().records());
        records(out, all);
      }
      case "heartbeat" -> {
        var request = new ConsumerGroupHeartbeatRequestData().setGroupId(in.get("group").asText())
            .setMemberId(in.get("member").asText()).setMemberEpoch(in.get("epoch").asInt());
        if (in.hasNonNull("instance")) request.setInstanceId(in.get("instance").asText());
        if (in.hasNonNull("rack")) request.setRackId(in.get("rack").asText());
        if (in.hasNonNull("timeout")) request.setRebalanceTimeoutMs(in.get("timeout").asInt());
        if (in.hasNonNull("assignor")) request.setServerAssignor(in.get("assignor").asText());
        if (in.hasNonNull("regex")) request.setSubscribedTopicRegex(in.get("regex").asText());
        if (in.hasNonNull("topics")) {
          List<String> names = new ArrayList<>();
          in.get("topics").forEach(n -> names.add(n.asText()));
          request.setSubscribedTopicNames(names);
        }
        if (in.hasNonNull("owned")) {
          List<ConsumerGroupHeartbeatRequestData.TopicPartitions> owned = new ArrayList<>();
          in.get("owned").fields().forEachRemaining(e -> {
            List<Integer> numbers = new ArrayList<>();
            e.getValue().forEach(n -> numbers.add(n.asInt()));
            owned.add(new ConsumerGroupHeartbeatRequestData.TopicPartitions().setTopicId(uuid(e.getKey())).setPartitions(numbers));
          });
          request.setTopicPartitions(owned);
        }
        var result = context.consumerGroupHeartbeat(request);
        var response = result.response();
        out.put("member", response.memberId()).put("epoch", response.memberEpoch());
        if (response.assignment() != null) {
          ObjectNode assignment = out.putObject("assignment");
          response.assignment().topicPartitions().forEach(tp -> {
            ArrayNode numbers = assignment.putArray(HexFormat.of().formatHex(bytes(tp.topicId())));
            tp.partitions().stream().sorted().forEach(numbers::add);
          });
        }
        records(out, result.records());
      }
      default -> throw new IllegalArgumentException(in.toString());
    }
    return out;
  }

  static void refresh() throws Exception {
    // The shard asks each group to compare its metadata when topics changed; the empty delta of above names none.
    for (String group : List.of("g"))
      try { context.groupMetadataManager.consumerGroup(group).requestMetadataRefresh(); } catch (ApiException missing) { }
  }

  static Uuid uuid(String hex) {
    var buffer = java.nio.ByteBuffer.wrap(HexFormat.of().parseHex(hex));
    return new Uuid(buffer.getLong(), buffer.getLong());
  }

  static byte[] bytes(Uuid id) {
    return java.nio.ByteBuffer.allocate(16).putLong(id.getMostSignificantBits()).putLong(id.getLeastSignificantBits()).array();
  }

  public static void main(String[] arguments) throws Exception {
    PrintStream output = System.out;
    System.setOut(System.err);
    var input = new BufferedReader(new InputStreamReader(System.in));
    for (String line; (line = input.readLine()) != null;) {
      ObjectNode out;
      try {
        out = run(JSON.readTree(line));
      } catch (ApiException refused) {
        out = JSON.createObjectNode().put("error", Errors.forException(refused).name()).put("message", refused.getMessage());
      }
      output.println(JSON.writeValueAsString(out));
      output.flush();
    }
  }
}
