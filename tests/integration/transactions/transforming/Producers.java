// Transactional producers of the Java client that misbehave: java Producers die|zombie <servers> <topic> <id> <timeout ms>
import java.util.Properties;

import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.serialization.StringSerializer;

public class Producers {
    public static void main(String[] arguments) throws Exception {
        try {
            switch (arguments[0]) {
                case "die" -> die(arguments);
                case "zombie" -> zombie(arguments);
                default -> throw new IllegalArgumentException(arguments[0]);
            }
        } catch (Throwable failure) {
            failure.printStackTrace();
            Runtime.getRuntime().halt(1);
        }
        Runtime.getRuntime().halt(9);
    }

    static void die(String[] arguments) throws Exception {
        KafkaProducer<String, String> producer = producer(arguments);
        producer.beginTransaction();
        producer.send(new ProducerRecord<>(arguments[2], "never")).get();
    }

    static void zombie(String[] arguments) throws Exception {
        KafkaProducer<String, String> first = producer(arguments);
        first.beginTransaction();
        first.send(new ProducerRecord<>(arguments[2], "zombie")).get();
        KafkaProducer<String, String> second = producer(arguments);
        second.beginTransaction();
        second.send(new ProducerRecord<>(arguments[2], "successor")).get();
        try {
            first.send(new ProducerRecord<>(arguments[2], "zombie again"));
            first.commitTransaction();
            System.out.println("committed");
        } catch (Exception refused) {
            System.out.println("refused " + refused.getClass().getSimpleName());
        }
        second.commitTransaction();
    }

    static KafkaProducer<String, String> producer(String[] arguments) {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", arguments[1]);
        settings.put("transactional.id", arguments[3]);
        settings.put("transaction.timeout.ms", arguments[4]);
        settings.put("retry.backoff.ms", "20");
        KafkaProducer<String, String> producer =
            new KafkaProducer<>(settings, new StringSerializer(), new StringSerializer());
        producer.initTransactions();
        return producer;
    }
}
