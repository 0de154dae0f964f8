"""The emoji world: things that Unicode named and several artists drew. Nothing in it is ours.

Its parts are folders of Parquet in ``pack``, read as anybody's (``emoji:noto/train``); how they
were made is in the repository, in ``zoo/emoji``.
"""
