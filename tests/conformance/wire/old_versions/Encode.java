import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.ByteBuffer;
import java.util.HexFormat;
import org.apache.kafka.common.protocol.Message;
import org.apache.kafka.common.protocol.MessageUtil;

/** Encodes messages with Apache Kafka's own classes: "Name version json" a line in, hexadecimal digits a line out. */
public class Encode {
    public static void main(String[] arguments) throws Exception {
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in, "UTF-8"));
        ObjectMapper mapper = new ObjectMapper();
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            String[] parts = line.split(" ", 3);
            short version = Short.parseShort(parts[1]);
            Class<?> converter = Class.forName("org.apache.kafka.common.message." + parts[0] + "DataJsonConverter");
            Message message = (Message) converter
                .getMethod("read", JsonNode.class, short.class)
                .invoke(null, mapper.readTree(parts[2]), version);
            ByteBuffer buffer = MessageUtil.toByteBuffer(message, version);
            byte[] bytes = new byte[buffer.remaining()];
            buffer.get(bytes);
            System.out.println(HexFormat.of().formatHex(bytes));
        }
    }
}
