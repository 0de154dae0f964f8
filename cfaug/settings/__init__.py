"""Settings, from files and a command line: declared, composed, checked and explained."""
