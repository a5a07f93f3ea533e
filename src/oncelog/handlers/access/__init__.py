"""Access control: ACLs, SCRAM credentials, delegation tokens, and the SASL APIs outside a login."""
