"""What classes declare of their settings: values, default, meaning, and when a setting is read."""
