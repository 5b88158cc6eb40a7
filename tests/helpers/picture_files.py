"""Reading one image file as the loaders read many."""

from fedbb.data.images.decode import decode_picture, tolerance


def read_picture(path, form):
    with tolerance():
        return decode_picture(path, path, form)
