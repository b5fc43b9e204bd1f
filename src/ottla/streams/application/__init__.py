"""The life of an application: how it changes from version to version, how far it is, what keeps it going."""
