"""Lists of items of other programs, compared item by item (``cfaug compare A B``)."""
