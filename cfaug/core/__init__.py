"""The ground floor: records, keyed randomness, files, settings, messages. No torch at import."""
