import io
import struct
import tarfile
import threading
import warnings
import zlib

import numpy as np
import pytest
from PIL import Image

from fedbb.data.images.archive import Folder, open_archive
from fedbb.data.images.decode import ImageFormat, decode_all, decode_image
from fedbb.errors import DataError
from helpers.image_files import read_image, request

GREY = np.arange(48, dtype=np.uint8).reshape(6, 8) * 5
COLOR = np.stack([GREY, 255 - GREY, GREY // 2], axis=2)


@pytest.fixture
def save(tmp_path):
    def write(image: Image.Image, name: str = "a.png", **how):
        image.save(tmp_path / name, **how)
        return tmp_path / name

    return write


def test_a_color_image_is_channels_first(save) -> None:
    pixels = read_image(save(Image.fromarray(COLOR)), ImageFormat(3, None))
    assert np.array_equal(pixels, COLOR.transpose(2, 0, 1))


def test_a_grey_image_has_one_channel_or_three_alike(save) -> None:
    path = save(Image.fromarray(GREY))
    assert np.array_equal(read_image(path, ImageFormat(1, None)), GREY[None])
    assert np.array_equal(read_image(path, ImageFormat(3, None)), np.stack([GREY] * 3))


def test_color_becomes_grey_by_brightness(save) -> None:
    pixels = read_image(save(Image.fromarray(COLOR)), ImageFormat(1, None))
    # The weights of ITU-R 601, which Pillow documents.
    brightness = COLOR @ np.array([299, 587, 114]) / 1000
    assert pixels.shape == (1, 6, 8)
    assert np.abs(pixels[0] - brightness).max() <= 1


@pytest.mark.parametrize("mode", ["P", "RGBA", "LA", "1", "CMYK"])
def test_every_common_kind_of_image_is_read(save, mode) -> None:
    name = "a.tif" if mode == "CMYK" else "a.png"
    path = save(Image.fromarray(COLOR).convert(mode), name)
    for channels in (1, 3):
        assert read_image(path, ImageFormat(channels, None)).shape == (channels, 6, 8)


def test_an_image_is_brought_to_the_asked_height_and_width(save) -> None:
    path = save(Image.fromarray(np.full((20, 10, 3), 77, np.uint8)))
    pixels = read_image(path, ImageFormat(3, (4, 6)))
    assert pixels.shape == (3, 4, 6)
    assert (pixels == 77).all()


def test_sixteen_bits_are_brought_to_eight_by_their_whole_range(save) -> None:
    values = np.array([[0, 257, 32896, 65535]], dtype=np.uint16)
    pixels = read_image(save(Image.fromarray(values)), ImageFormat(1, None))
    assert pixels.tolist() == [[[0, 1, 128, 255]]]


def test_images_of_unknown_range_are_refused(save) -> None:
    path = save(Image.fromarray(np.ones((3, 3), np.float32)), "a.tif")
    with pytest.raises(DataError, match="fractions"):
        read_image(path, ImageFormat(1, None))
    path = save(Image.fromarray(np.full((3, 3), 70_000, np.int32)), "b.tif")
    with pytest.raises(DataError, match="beyond 16 bits"):
        read_image(path, ImageFormat(1, None))


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
        read_image(path, ImageFormat(3, None))


@pytest.mark.parametrize(("width", "height"), [(12_000, 9_000), (60_000, 60_000)])
@pytest.mark.filterwarnings("ignore")
def test_an_image_too_large_is_refused_before_it_is_unpacked(tmp_path, width, height) -> None:
    path = tmp_path / "bomb.png"
    path.write_bytes(png_that_claims(width, height))
    with pytest.raises(DataError, match=r"bomb\.png cannot be read: .*decompression bomb"):
        read_image(path, ImageFormat(3, None))


def test_odd_metadata_does_no_harm(save) -> None:
    path = save(Image.fromarray(GREY), "a.tif", compression="raw")
    whole = path.read_bytes()
    # Tag 284, planar configuration, gets two values where one is expected.
    entry = whole.index(struct.pack("<HHI", 284, 3, 1))
    path.write_bytes(whole[:entry] + struct.pack("<HHI", 284, 3, 2) + whole[entry + 8 :])
    assert np.array_equal(read_image(path, ImageFormat(1, None)), GREY[None])


def test_a_missing_file_or_a_folder_is_refused_by_name(tmp_path) -> None:
    for path in (tmp_path / "nowhere.png", tmp_path):
        with pytest.raises(DataError, match=f"image {path} cannot be read"):
            read_image(path, ImageFormat(3, None))


NUMBER = 150


@pytest.fixture
def folder(tmp_path):
    """Images whose pixels all hold their number."""
    for number in range(NUMBER):
        Image.fromarray(np.full((3, 4), number, np.uint8)).save(tmp_path / f"{number}.png")
    return tmp_path


def names(numbers) -> tuple[str, ...]:
    return tuple(f"{number}.png" for number in numbers)


def test_many_images_come_in_the_order_of_their_names(folder) -> None:
    order = np.random.default_rng(0).permutation(NUMBER)
    made = decode_all(request(Folder(folder), names(order), ImageFormat(1, None)))
    assert made.images[:, 0, 0, 0].tolist() == order.tolist()
    assert made.rows.tolist() == list(range(NUMBER))


def test_an_foundgives_what_its_folder_gives(folder) -> None:
    order = np.random.default_rng(1).permutation(NUMBER)
    with tarfile.open(folder / "all.tar.gz", "w:gz") as archive:
        for number in reversed(range(NUMBER)):
            archive.add(folder / f"{number}.png", f"{number}.png")
    made = [
        decode_all(request(found, names(order), ImageFormat(3, (2, 2), "box")))
        for found in (Folder(folder), open_archive(folder / "all.tar.gz"))
    ]
    assert np.array_equal(made[0].images, made[1].images)
    assert made[0].images.shape == (NUMBER, 3, 2, 2)


def test_what_an_foundlacks_or_holds_damaged_is_refused_or_skipped(tmp_path) -> None:
    good = io.BytesIO()
    Image.fromarray(np.zeros((3, 4), np.uint8)).save(good, "PNG")
    members = {"good.png": good.getvalue(), "bad.png": b"no image", "cut.png": good.getvalue()[:40]}
    with tarfile.open(tmp_path / "a.tar", "w") as archive:
        for name, content in members.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))
    found = open_archive(tmp_path / "a.tar")
    for bad, reason in (("bad.png", "it is not an image"), ("lost.png", "not in"), ("cut.png", "")):
        with pytest.raises(DataError, match=rf"image .*{bad} .*{reason}"):
            decode_all(request(found, ("good.png", bad), ImageFormat(1, None)))
    wanted = ("lost.png", "cut.png", "good.png", "bad.png")
    made = decode_all(request(found, wanted, ImageFormat(1, None), "skip"))
    assert made.rows.tolist() == [2]
    assert made.skipped == ("lost.png", "cut.png", "bad.png")


def test_progress_rises_to_the_number_of_images(folder) -> None:
    told = []
    asked = request(
        Folder(folder),
        names(range(NUMBER)),
        ImageFormat(1, None),
        progress=lambda *figures: told.append(figures),
    )
    decode_all(asked)
    assert [whole for _, whole in told] == [NUMBER] * len(told)
    assert [done for done, _ in told] == sorted({done for done, _ in told})
    assert told[-1] == (NUMBER, NUMBER)


def test_decoding_leaves_no_thread_and_no_filter_of_warnings_behind(folder) -> None:
    filters, threads = list(warnings.filters), threading.active_count()
    (folder / "bad.png").write_bytes(b"")
    with pytest.raises(DataError, match=r"bad\.png"):
        decode_all(request(Folder(folder), (*names(range(99)), "bad.png"), ImageFormat(1, None)))
    assert warnings.filters == filters
    assert threading.active_count() == threads


def test_box_scaling_is_the_mean_of_the_pixels_covered(tmp_path) -> None:
    pixels = np.random.default_rng(0).integers(0, 256, (8, 8, 3), dtype=np.uint8)
    Image.fromarray(pixels).save(tmp_path / "a.png")
    made = read_image(tmp_path / "a.png", ImageFormat(3, (4, 4), "box"))
    means = pixels.reshape(4, 2, 4, 2, 3).astype(float).mean(axis=(1, 3)).transpose(2, 0, 1)
    # Pillow scales rows and columns in turn and rounds after each.
    assert np.abs(made - means).max() <= 1
    assert np.abs(made - means).mean() < 0.5


@pytest.mark.parametrize("kind", ["GIF", "PPM", "ICO"])
def test_other_formats_are_refused(tmp_path, kind):
    Image.new("RGB", (16, 16)).save(tmp_path / "a.png", format=kind)
    with pytest.raises(DataError, match=r"a\.png"):
        decode_image(tmp_path / "a.png", tmp_path / "a.png", ImageFormat(3, None))
