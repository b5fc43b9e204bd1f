"""What is worth seeing and what is worth waking up for, in the languages of Grafana and Prometheus."""
