"""How the emoji pack is made: ``python -m zoo emoji out=FOLDER downloads=FOLDER``.

The drawings of several artists, with Unicode's names for them, come from published packages
(``zoo.emoji.packages``), which ``npm`` fetches into ``downloads`` unless they are there. Parquet is
written for each artist and part (``zoo.emoji.parts``), and ``card.json`` with what was left out.
``artists=noto,fluent,twemoji,openmoji`` also draws what is not shipped, because of its licence.

``make env`` installs the renderer, resvg-py. A picture's bytes depend on the version of
Pillow's libwebp, and a file's on pyarrow's: the card has the hash of the pixels, which do not.
"""
