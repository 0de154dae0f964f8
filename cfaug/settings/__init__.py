"""From files and a command line to settings: declared, composed, explained, and read by something."""
