"""Reading one image file as the loaders read many."""

from fedbb.data.images.decode import ImageSource, Request, decode_image, tolerance


def read_image(path, wanted):
    with tolerance():
        return decode_image(path, path, wanted)


def request(archive, names, wanted, unreadable="refuse", **fields) -> Request:
    return Request(ImageSource(archive, wanted, unreadable), tuple(names), **fields)
