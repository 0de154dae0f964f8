"""Lists of items of other programs, compared item by item (``evaluate.py compare=[A,B]``)."""
