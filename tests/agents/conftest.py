from tests.scanning.conftest import ground

__all__ = ["ground"]
