"""VisoGender (Hall et al., 2023): pronouns and neutral queries about photos of people at work."""
