"""What the settings of a command name: data opened, objects built, a training planned."""
