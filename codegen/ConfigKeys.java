import java.lang.reflect.Field;
import java.util.Base64;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import org.apache.kafka.common.config.ConfigDef;
import org.apache.kafka.coordinator.group.GroupConfig;
import org.apache.kafka.server.config.AbstractKafkaConfig;
import org.apache.kafka.server.config.DynamicBrokerConfig;
import org.apache.kafka.server.config.DynamicConfig;
import org.apache.kafka.server.config.ServerTopicConfigSynonyms;
import org.apache.kafka.server.metrics.ClientMetricsConfigs;
import org.apache.kafka.storage.internals.log.LogConfig;

/** Prints every configuration key that a broker, a topic, a group and a client metrics subscription have. */
public class ConfigKeys {
    public static void main(String[] arguments) throws Exception {
        Map<String, ConfigDef.ConfigKey> broker = AbstractKafkaConfig.CONFIG_DEF.configKeys();
        Map<String, String> updates = DynamicBrokerConfig.dynamicConfigUpdateModes();
        for (ConfigDef.ConfigKey key : sorted(broker)) {
            List<String> synonyms = DynamicBrokerConfig.brokerConfigSynonyms(key.name, true);
            int next = synonyms.indexOf(key.name) + 1;
            print("BROKER", key, updates.get(key.name), next < synonyms.size() ? synonyms.get(next) : null);
        }
        for (ConfigDef.ConfigKey key : sorted(DynamicConfig.Broker.configKeys())) {
            if (!broker.containsKey(key.name)) {
                print("THROTTLES", key, updates.get(key.name), null);
            }
        }
        for (ConfigDef.ConfigKey key : sorted(LogConfig.configKeys())) {
            print("TOPIC", key, null, ServerTopicConfigSynonyms.TOPIC_CONFIG_SYNONYMS.get(key.name));
        }
        for (ConfigDef.ConfigKey key : sorted(GroupConfig.CONFIG_DEF.configKeys())) {
            print("GROUP", key, null, GroupConfig.brokerSynonym(key.name).orElse(null));
        }
        for (ConfigDef.ConfigKey key : sorted(ClientMetricsConfigs.configDef().configKeys())) {
            print("CLIENT_METRICS", key, null, null);
        }
    }

    private static Iterable<ConfigDef.ConfigKey> sorted(Map<String, ConfigDef.ConfigKey> keys) {
        return new TreeMap<>(keys).values();
    }

    /** One line of fields with tabs between them; an absent one is empty, and texts of people are in Base64. */
    private static void print(String table, ConfigDef.ConfigKey key, String update, String synonym) throws Exception {
        String value = key.hasDefault() ? ConfigDef.convertToString(key.defaultValue, key.type) : null;
        System.out.println(String.join("\t",
            table, key.name, key.type.name(), value == null ? "" : "=" + value,
            key.validator == null ? "" : key.validator.getClass().getSimpleName(), String.valueOf(key.validator),
            String.valueOf(mayBeEmpty(key.validator)), update == null ? "" : update, synonym == null ? "" : synonym,
            String.valueOf(key.internalConfig),
            Base64.getEncoder().encodeToString(String.valueOf(key.documentation).getBytes("UTF-8"))));
    }

    private static boolean mayBeEmpty(ConfigDef.Validator validator) throws Exception {
        if (!(validator instanceof ConfigDef.ValidList)) {
            return true;
        }
        Field allowed = ConfigDef.ValidList.class.getDeclaredField("isEmptyAllowed");
        allowed.setAccessible(true);
        return allowed.getBoolean(validator);
    }
}
