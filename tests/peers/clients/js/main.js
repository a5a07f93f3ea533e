// KafkaJS against one address: `node main.js ADDRESS SCENARIO`. Exits 1 with a line on stderr when something is wrong.
const { readFileSync } = require("node:fs");
const { CompressionTypes, ConfigResourceTypes, Kafka, logLevel } = require("kafkajs");

const fail = (what) => {
  throw new Error(what);
};
const expect = (condition, what) => condition || fail(what);
const refusedWith = async (type, call) => {
  try {
    await call();
  } catch (error) {
    const seen = error.errors ? error.errors[0] : error;
    expect(seen.type === type, `refused with ${seen.type}, not ${type}: ${error.message}`);
    return;
  }
  fail(`not refused with ${type}`);
};

async function withClient(client, use) {
  await client.connect();
  try {
    return await use(client);
  } finally {
    await client.disconnect();
  }
}

const makeTopic = (kafka, topic, numPartitions = 1, configEntries = []) =>
  withClient(kafka.admin(), (admin) => admin.createTopics({ topics: [{ topic, numPartitions, configEntries }] }));

async function readAll(kafka, topic, groupId, count) {
  const messages = [];
  await withClient(kafka.consumer({ groupId, maxWaitTimeInMs: 200 }), async (consumer) => {
    await consumer.subscribe({ topic, fromBeginning: true });
    await new Promise((resolve, reject) => {
      consumer.on(consumer.events.CRASH, (event) => reject(event.payload.error));
      consumer
        .run({
          autoCommit: false,
          eachMessage: async ({ message }) => {
            messages.push(message);
            if (messages.length >= count) resolve();
          },
        })
        .catch(reject);
    });
    const next = (BigInt(messages[messages.length - 1].offset) + 1n).toString();
    await consumer.commitOffsets([{ topic, partition: 0, offset: next, metadata: "js" }]);
  });
  return messages;
}

async function produceConsume(kafka) {
  const topic = "js-codecs";
  await makeTopic(kafka, topic);
  const sent = [];
  for (const [compression, idempotent] of [[CompressionTypes.None, false], [CompressionTypes.GZIP, false], [CompressionTypes.None, true]]) {
    await withClient(kafka.producer({ idempotent }), async (producer) => {
      const messages = [...Array(10).keys()].map((number) => ({
        key: "k",
        value: `${compression}-${idempotent}-${number}`.repeat(5),
        timestamp: "7000",
        headers: { h: "1" },
      }));
      await producer.send({ topic, compression, messages });
      sent.push(...messages.map((message) => message.value));
    });
  }
  const messages = await readAll(kafka, topic, "js-codecs", sent.length);
  messages.forEach((message, position) => {
    expect(message.value.toString() === sent[position], `record ${position} is ${message.value}`);
    expect(message.offset === String(position), `record ${position} is at ${message.offset}`);
  });
}

async function groups(kafka) {
  const topic = "js-group";
  await makeTopic(kafka, topic, 4);
  const member = () => kafka.consumer({ groupId: "js-group", heartbeatInterval: 200, sessionTimeout: 6000, maxWaitTimeInMs: 100 });
  const assignments = new Map();
  const join = async (name) => {
    const consumer = member();
    consumer.on(consumer.events.GROUP_JOIN, (event) => assignments.set(name, event.payload.memberAssignment[topic] || []));
    await consumer.connect();
    await consumer.subscribe({ topic });
    await consumer.run({ eachMessage: async () => {} });
    return consumer;
  };
  const settle = async (...sizes) => {
    while (JSON.stringify([...assignments.values()].map((each) => each.length).sort()) !== JSON.stringify(sizes)) {
      await new Promise((resolve) => setTimeout(resolve, 50));
    }
  };
  const first = await join("first");
  await settle(4);
  const second = await join("second");
  await settle(2, 2);
  await second.disconnect();
  assignments.delete("second");
  await settle(4);
  await first.disconnect();
  await withClient(kafka.admin(), async (admin) => {
    const { groups: listed } = await admin.listGroups();
    expect(listed.some((group) => group.groupId === "js-group"), "the group is listed");
    const described = await admin.describeGroups(["js-group"]);
    expect(described.groups[0].state === "Empty", `state ${described.groups[0].state}`);
    await admin.setOffsets({ groupId: "js-group", topic, partitions: [{ partition: 0, offset: "0" }] });
    const offsets = await admin.fetchOffsets({ groupId: "js-group", topics: [topic] });
    expect(offsets[0].partitions.find((each) => each.partition === 0).offset === "0", "the offset that was set");
    await admin.deleteGroups(["js-group"]);
  });
}

async function admin(kafka) {
  const topic = "js-admin";
  await makeTopic(kafka, topic, 2);
  await withClient(kafka.admin(), async (client) => {
    expect((await client.createTopics({ topics: [{ topic }] })) === false, "a topic that exists");
    await refusedWith("INVALID_REPLICATION_FACTOR", () =>
      client.createTopics({ topics: [{ topic: "js-seven", numPartitions: 1, replicationFactor: 7 }] }));
    await client.createPartitions({ topicPartitions: [{ topic, count: 3 }] });
    const metadata = await client.fetchTopicMetadata({ topics: [topic] });
    expect(metadata.topics[0].partitions.length === 3, "three partitions");
    const resource = { type: ConfigResourceTypes.TOPIC, name: topic };
    await client.alterConfigs({ resources: [{ ...resource, configEntries: [{ name: "retention.ms", value: "5000" }] }] });
    const configs = await client.describeConfigs({ resources: [{ ...resource, configNames: ["retention.ms"] }], includeSynonyms: true });
    expect(configs.resources[0].configEntries[0].configValue === "5000", "the value that was set");
    await withClient(kafka.producer(), (producer) =>
      producer.send({ topic, messages: [{ value: "v", partition: 0, timestamp: "7000" }] }));
    const offsets = await client.fetchTopicOffsets(topic);
    expect(offsets.find((each) => each.partition === 0).high === "1", "one record");
    await client.fetchTopicOffsetsByTimestamp(topic, 7000);
    await client.deleteTopicRecords({ topic, partitions: [{ partition: 0, offset: "1" }] });
    await client.describeCluster();
    await client.deleteTopics({ topics: [topic] });
  });
}

async function errors(kafka) {
  const topic = "js-errors";
  await makeTopic(kafka, topic, 1, [{ name: "cleanup.policy", value: "compact" }]);
  await withClient(kafka.producer(), async (producer) => {
    await refusedWith("MESSAGE_TOO_LARGE", () =>
      producer.send({ topic, messages: [{ key: "k", value: "x".repeat(2_000_000) }] }));
  });
}

const transactional = (kafka, transactionalId, use) =>
  withClient(kafka.producer({ transactionalId, idempotent: true, maxInFlightRequests: 1, transactionTimeout: 20000 }), use);

const send = (to, topic, ...values) =>
  to.send({ topic, messages: values.map((value) => ({ value, partition: 0, timestamp: "7000" })) });

const expectValues = async (kafka, topic, groupId, ...expected) => {
  const found = (await readAll(kafka, topic, groupId, expected.length)).map((message) => message.value.toString());
  expect(JSON.stringify(found) === JSON.stringify(expected), `${topic}: ${found}`);
};

async function commitAndAbort(kafka) {
  await makeTopic(kafka, "jt-one");
  await makeTopic(kafka, "jt-two");
  await transactional(kafka, "jt-commit", async (producer) => {
    for (const number of [0, 1, 2, 3]) {
      const transaction = await producer.transaction();
      await send(transaction, "jt-one", `a${number}`, `b${number}`);
      await send(transaction, "jt-two", `c${number}`);
      await (number % 2 ? transaction.abort() : transaction.commit());
    }
  });
  await expectValues(kafka, "jt-one", "jt-one", "a0", "b0", "a2", "b2");
  await expectValues(kafka, "jt-two", "jt-two", "c0", "c2");
}

async function offsetsInside(kafka) {
  const topic = "jt-source";
  await makeTopic(kafka, topic);
  await makeTopic(kafka, "jt-sink");
  await withClient(kafka.producer(), (producer) => send(producer, topic, "0", "1", "2", "3"));
  await transactional(kafka, "jt-copy", async (producer) => {
    for (const [offset, ends] of [["4", "abort"], ["2", "commit"]]) {
      const transaction = await producer.transaction();
      await send(transaction, "jt-sink", ends, "copied");
      await transaction.sendOffsets({ consumerGroupId: "jt-group", topics: [{ topic, partitions: [{ partition: 0, offset }] }] });
      await transaction[ends]();
    }
  });
  await expectValues(kafka, "jt-sink", "jt-sink", "commit", "copied");
  const offsets = await withClient(kafka.admin(), (client) => client.fetchOffsets({ groupId: "jt-group", topics: [topic] }));
  expect(offsets[0].partitions[0].offset === "2", `the offset committed is ${offsets[0].partitions[0].offset}`);
}

async function fencing(kafka) {
  const topic = "jt-fenced";
  await makeTopic(kafka, topic);
  await transactional(kafka, "jt-fencing", async (first) => {
    const before = await first.transaction();
    await send(before, topic, "first");
    await before.commit();
    await transactional(kafka, "jt-fencing", async (second) => {
      const transaction = await second.transaction();
      await send(transaction, topic, "second");
      await transaction.commit();
    });
    const zombie = await first.transaction();
    await refusedWith("INVALID_PRODUCER_EPOCH", () => send(zombie, topic, "zombie"));
  });
  await expectValues(kafka, topic, "jt-fenced", "first", "second");
}

// How to log in, from the environment variable PEER_SECURITY; without a mechanism by a certificate.
function secured(given) {
  const ssl = { ca: [readFileSync(given.CA, "utf-8")] };
  if (given.Certificate) ssl.key = ssl.cert = readFileSync(given.Certificate, "utf-8");
  if (!given.Mechanism) return { ssl };
  const mechanism = given.Mechanism.toLowerCase();
  if (mechanism === "oauthbearer") return { ssl, sasl: { mechanism, oauthBearerProvider: async () => ({ value: given.Token }) } };
  return { ssl, sasl: { mechanism, username: given.User, password: given.Password } };
}

async function security(_, options) {
  const given = JSON.parse(process.env.PEER_SECURITY);
  const kafka = new Kafka({ ...options, ...secured(given) });
  await makeTopic(kafka, "js-secured");
  await withClient(kafka.producer(), (producer) => producer.send({ topic: "js-secured", messages: [{ value: "secret" }] }));
  const [message] = await readAll(kafka, "js-secured", "js-secured", 1);
  expect(message.value.toString() === "secret", `read ${message.value}`);
  const wrong = { ...given, Password: `${given.Password}x`, Token: (given.Token || "").toUpperCase() };
  if (!given.Mechanism) delete wrong.Certificate;
  const refused = new Kafka({ ...options, ...secured(wrong), retry: { retries: 0 } }).admin();
  // KafkaJS takes the first answer to a wrong token for a welcome, so something has to be asked.
  const topics = await refused.connect().then(() => refused.listTopics()).catch((reason) => reason);
  await refused.disconnect();
  expect(topics instanceof Error, `a wrong login is shown ${topics}`);
  const hasPassword = given.Mechanism && given.Mechanism !== "OAUTHBEARER";
  expect(!hasPassword || /authenticat/i.test(topics.message), `a wrong login is answered ${topics.message}`);
}

async function main() {
  const [address, scenario] = process.argv.slice(2);
  const options = { brokers: [address], logLevel: logLevel.NOTHING, retry: { retries: 3, initialRetryTime: 50 } };
  const kafka = new Kafka(options);
  const scenarios = {
    "produce-consume": produceConsume, groups, admin, errors,
    "transactions-commit-abort": commitAndAbort, "transactions-offsets": offsetsInside, "transactions-fencing": fencing,
    security,
  };
  await scenarios[scenario](kafka, options);
}

main().then(
  () => process.exit(0),
  (error) => {
    console.error(error.stack);
    process.exit(1);
  },
);
