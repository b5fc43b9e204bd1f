"""The nodes of a sub-topology run for one partition, record by record, in the test driver as in Spark."""
