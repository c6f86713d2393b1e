"""The command by `python -m keras_rank`: on the backend of Keras, which is imported."""

from keras_rank_command import main

if __name__ == "__main__":
    main()
