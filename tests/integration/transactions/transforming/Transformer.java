// The transformer with the Java client: java Transformer <servers> <source> <target> <group> <seed> <timeout ms>
import java.time.Duration;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.Random;

import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

public class Transformer {
    public static void main(String[] arguments) {
        try {
            run(arguments);
        } catch (Throwable failure) {
            failure.printStackTrace();
            report("failed " + failure);
        }
        Runtime.getRuntime().halt(1);
    }

    static void run(String[] arguments) {
        String servers = arguments[0], source = arguments[1], target = arguments[2], group = arguments[3];
        Random chance = new Random(Long.parseLong(arguments[4]));
        Properties settings = new Properties();
        settings.put("bootstrap.servers", servers);
        settings.put("transactional.id", group + "-transformer");
        settings.put("transaction.timeout.ms", arguments[5]);
        settings.put("linger.ms", "0");
        settings.put("retry.backoff.ms", "20");
        KafkaProducer<String, String> producer =
            new KafkaProducer<>(settings, new StringSerializer(), new StringSerializer());
        settings = new Properties();
        settings.put("bootstrap.servers", servers);
        settings.put("group.id", group);
        settings.put("group.instance.id", "transformer");
        settings.put("session.timeout.ms", "30000");
        settings.put("auto.offset.reset", "earliest");
        settings.put("enable.auto.commit", "false");
        settings.put("isolation.level", "read_committed");
        settings.put("fetch.max.wait.ms", "20");
        settings.put("max.poll.records", "4");
        settings.put("retry.backoff.ms", "20");
        KafkaConsumer<byte[], byte[]> consumer =
            new KafkaConsumer<>(settings, new ByteArrayDeserializer(), new ByteArrayDeserializer());
        producer.initTransactions();
        report("initialised");
        consumer.subscribe(List.of(source));
        while (true) {
            List<ConsumerRecord<byte[], byte[]>> records = new ArrayList<>();
            consumer.poll(Duration.ofMillis(250)).forEach(records::add);
            if (records.isEmpty()) {
                report("idle");
                continue;
            }
            boolean aborted = chance.nextDouble() < 0.15;
            producer.beginTransaction();
            report("begun");
            Map<TopicPartition, OffsetAndMetadata> offsets = new HashMap<>();
            Map<TopicPartition, Long> first = new HashMap<>();
            for (ConsumerRecord<byte[], byte[]> record : records) {
                String value = (aborted ? "aborted:" : "") + record.partition() + ":" + record.offset();
                producer.send(new ProducerRecord<>(target, record.partition(), null, value));
                TopicPartition partition = new TopicPartition(source, record.partition());
                offsets.put(partition, new OffsetAndMetadata(record.offset() + 1));
                first.putIfAbsent(partition, record.offset());
            }
            report("sent");
            producer.sendOffsetsToTransaction(offsets, consumer.groupMetadata());
            report("offsets");
            if (aborted) {
                producer.flush();
                producer.abortTransaction();
                first.forEach(consumer::seek);
                report("aborted");
            } else {
                producer.commitTransaction();
                report("committed");
            }
        }
    }

    static void report(String step) {
        System.out.println(step);
        System.out.flush();
    }
}
