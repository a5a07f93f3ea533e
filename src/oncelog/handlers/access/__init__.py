"""Access: lists, SCRAM credentials, delegation tokens, and the two SASL APIs where no login is due."""
