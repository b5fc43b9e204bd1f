import java.util.HexFormat;
import java.util.Map;
import org.apache.flink.avro.registry.confluent.shaded.io.confluent.kafka.schemaregistry.avro.AvroSchema;
import org.apache.flink.avro.registry.confluent.shaded.io.confluent.kafka.schemaregistry.client.CachedSchemaRegistryClient;
import org.apache.flink.avro.registry.confluent.shaded.io.confluent.kafka.schemaregistry.client.rest.exceptions.RestClientException;
import org.apache.flink.avro.shaded.org.apache.avro.Schema;
import org.apache.flink.avro.shaded.org.apache.avro.generic.GenericData;
import org.apache.flink.avro.shaded.org.apache.avro.generic.GenericRecord;
import org.apache.flink.formats.avro.registry.confluent.ConfluentRegistryAvroDeserializationSchema;
import org.apache.flink.formats.avro.registry.confluent.ConfluentRegistryAvroSerializationSchema;

/** Confluent's Java client and a Java serializer on it: reads a record, writes one, and asks around. */
public class Registered {
    public static void main(String[] given) throws Exception {
        String url = given[0], subject = given[1];
        Schema schema = new Schema.Parser().parse(given[2]);
        byte[] theirs = HexFormat.of().parseHex(given[3]);

        var reader = ConfluentRegistryAvroDeserializationSchema.forGeneric(schema, url);
        System.out.println("read " + reader.deserialize(theirs));

        GenericRecord order = new GenericData.Record(schema);
        order.put("id", "from Java");
        order.put("cents", 7L);
        var writer = ConfluentRegistryAvroSerializationSchema.forGeneric(subject, schema, url);
        System.out.println("wrote " + HexFormat.of().formatHex(writer.serialize(order)));

        var client = new CachedSchemaRegistryClient(url, 10, Map.of());
        System.out.println("version " + client.getVersion(subject, new AvroSchema(schema)));
        System.out.println("same " + client.getSchemaById(client.getId(subject, new AvroSchema(schema)))
                .canonicalString().equals(new AvroSchema(schema).canonicalString()));
        System.out.println("level " + client.updateCompatibility(subject, "FULL"));
        try {
            client.register(subject, new AvroSchema("\"string\""));
        } catch (RestClientException refused) {
            System.out.println("refused " + refused.getStatus());
        }
    }
}
