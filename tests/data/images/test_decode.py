import io
import struct
import zlib

import numpy as np
import pytest
from PIL import Image

from fedbb.data.images.decode import Form
from fedbb.errors import DataError
from helpers.picture_files import read_picture

GREY = np.arange(48, dtype=np.uint8).reshape(6, 8) * 5
COLOR = np.stack([GREY, 255 - GREY, GREY // 2], axis=2)


@pytest.fixture
def save(tmp_path):
    def write(image: Image.Image, name: str = "a.png", **how):
        image.save(tmp_path / name, **how)
        return tmp_path / name

    return write


def test_a_color_image_is_channels_first(save) -> None:
    pixels = read_picture(save(Image.fromarray(COLOR)), Form(3, None))
    assert np.array_equal(pixels, COLOR.transpose(2, 0, 1))


def test_a_grey_image_has_one_channel_or_three_alike(save) -> None:
    path = save(Image.fromarray(GREY))
    assert np.array_equal(read_picture(path, Form(1, None)), GREY[None])
    assert np.array_equal(read_picture(path, Form(3, None)), np.stack([GREY] * 3))


def test_color_becomes_grey_by_brightness(save) -> None:
    pixels = read_picture(save(Image.fromarray(COLOR)), Form(1, None))
    # The weights of ITU-R 601, which Pillow documents.
    brightness = COLOR @ np.array([299, 587, 114]) / 1000
    assert pixels.shape == (1, 6, 8)
    assert np.abs(pixels[0] - brightness).max() <= 1


@pytest.mark.parametrize("mode", ["P", "RGBA", "LA", "1", "CMYK"])
def test_every_common_kind_of_image_is_read(save, mode) -> None:
    name = "a.tif" if mode == "CMYK" else "a.png"
    path = save(Image.fromarray(COLOR).convert(mode), name)
    for channels in (1, 3):
        assert read_picture(path, Form(channels, None)).shape == (channels, 6, 8)


def test_an_image_is_brought_to_the_asked_height_and_width(save) -> None:
    path = save(Image.fromarray(np.full((20, 10, 3), 77, np.uint8)))
    pixels = read_picture(path, Form(3, (4, 6)))
    assert pixels.shape == (3, 4, 6)
    assert (pixels == 77).all()


def test_sixteen_bits_are_brought_to_eight_by_their_whole_range(save) -> None:
    values = np.array([[0, 257, 32896, 65535]], dtype=np.uint16)
    pixels = read_picture(save(Image.fromarray(values)), Form(1, None))
    assert pixels.tolist() == [[[0, 1, 128, 255]]]


def test_images_of_unknown_range_are_refused(save) -> None:
    path = save(Image.fromarray(np.ones((3, 3), np.float32)), "a.tif")
    with pytest.raises(DataError, match="fractions"):
        read_picture(path, Form(1, None))
    path = save(Image.fromarray(np.full((3, 3), 70_000, np.int32)), "b.tif")
    with pytest.raises(DataError, match="beyond 16 bits"):
        read_picture(path, Form(1, None))


def encoded(kind: str) -> bytes:
    file = io.BytesIO()
    noise = np.random.default_rng(0).integers(0, 256, (40, 40, 3), dtype=np.uint8)
    Image.fromarray(noise).save(file, kind)
    return file.getvalue()


def png_that_claims(width: int, height: int) -> bytes:
    """A small, well-formed PNG file whose header announces a huge image."""

    def chunk(kind: bytes, content: bytes) -> bytes:
        checksum = struct.pack(">I", zlib.crc32(kind + content))
        return struct.pack(">I", len(content)) + kind + content + checksum

    header = struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)
    body = chunk(b"IDAT", zlib.compress(bytes(1000)))
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + body + chunk(b"IEND", b"")


@pytest.mark.parametrize(
    "content",
    [
        b"",
        bytes(1000),
        b"a text, no image",
        encoded("PNG")[:200],
        encoded("PNG")[:-200],
        encoded("JPEG")[:300],
        encoded("JPEG")[:-300],
        encoded("PNG")[:100] + bytes(50) + encoded("PNG")[150:],
        png_that_claims(12_000, 9_000),
        png_that_claims(60_000, 60_000),
    ],
    ids=["empty", "zeros", "text", "png", "png end", "jpeg", "jpeg end", "hole", "large", "bomb"],
)
def test_what_cannot_be_read_is_refused_by_name(tmp_path, content) -> None:
    path = tmp_path / "broken.img"
    path.write_bytes(content)
    with pytest.raises(DataError, match=r"image .*broken\.img cannot be read"):
        read_picture(path, Form(3, None))


@pytest.mark.parametrize(("width", "height"), [(12_000, 9_000), (60_000, 60_000)])
@pytest.mark.filterwarnings("ignore")
def test_an_image_too_large_is_refused_before_it_is_unpacked(tmp_path, width, height) -> None:
    path = tmp_path / "bomb.png"
    path.write_bytes(png_that_claims(width, height))
    with pytest.raises(DataError, match=r"bomb\.png cannot be read: .*decompression bomb"):
        read_picture(path, Form(3, None))


def test_odd_metadata_does_no_harm(save) -> None:
    path = save(Image.fromarray(GREY), "a.tif", compression="raw")
    whole = path.read_bytes()
    # Tag 284, planar configuration, gets two values where one is expected.
    entry = whole.index(struct.pack("<HHI", 284, 3, 1))
    path.write_bytes(whole[:entry] + struct.pack("<HHI", 284, 3, 2) + whole[entry + 8 :])
    assert np.array_equal(read_picture(path, Form(1, None)), GREY[None])


def test_a_missing_file_or_a_folder_is_refused_by_name(tmp_path) -> None:
    for path in (tmp_path / "nowhere.png", tmp_path):
        with pytest.raises(DataError, match=f"image {path} cannot be read"):
            read_picture(path, Form(3, None))
