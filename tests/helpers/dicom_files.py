"""DICOM files made of arrays."""

import numpy as np
import pydicom
from pydicom.dataset import FileMetaDataset
from pydicom.uid import ExplicitVRLittleEndian, SecondaryCaptureImageStorage, generate_uid

RAMP = np.arange(48, dtype=np.uint16).reshape(6, 8) * 20


def write(path, pixels=RAMP, patient="P1", **elements):
    """Write a DICOM file; None leaves an element out."""
    meta = FileMetaDataset()
    meta.MediaStorageSOPClassUID = SecondaryCaptureImageStorage
    meta.MediaStorageSOPInstanceUID = generate_uid()
    meta.TransferSyntaxUID = ExplicitVRLittleEndian
    file = pydicom.Dataset()
    file.file_meta = meta
    file.SOPClassUID = meta.MediaStorageSOPClassUID
    file.SOPInstanceUID = meta.MediaStorageSOPInstanceUID
    file.StudyInstanceUID = f"1.2.{patient[1:]}"
    file.PatientID = patient
    file.Rows, file.Columns = pixels.shape[:2]
    file.SamplesPerPixel = 1 if pixels.ndim == 2 else 3
    file.PhotometricInterpretation = "MONOCHROME2" if pixels.ndim == 2 else "RGB"
    file.BitsAllocated = file.BitsStored = 8 * pixels.dtype.itemsize
    file.HighBit = file.BitsStored - 1
    file.PixelRepresentation = 0
    file.PixelData = pixels.tobytes()
    if pixels.ndim == 3:
        file.PlanarConfiguration = 0
    for name, value in elements.items():
        setattr(file, name, value)
    path.parent.mkdir(parents=True, exist_ok=True)
    file.save_as(path, enforce_file_format=True)
    return path
