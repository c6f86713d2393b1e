"""`python -m keras_rank` runs the command, on Keras's backend."""

from keras_rank_command import main

if __name__ == "__main__":
    main()
