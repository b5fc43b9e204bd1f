"""Share groups (KIP-932) at the leader of a partition: who of a group has which records, and for how long."""
