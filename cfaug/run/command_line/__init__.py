"""From words to settings: files of settings, composition, help, and what a command reads."""
