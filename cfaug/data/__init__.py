"""Records on disk, indexes over them, exact mixtures, and the loader."""
