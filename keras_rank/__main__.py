"""Entry point of `python -m keras_rank`, which runs the command `keras-rank`.

The package is imported first, so the command runs on the backend that Keras chooses.
"""

from keras_rank_command import main

if __name__ == "__main__":
    main()
