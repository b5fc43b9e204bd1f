"""Looking into the files of a broker, in the words of Apache Kafka's tools."""
