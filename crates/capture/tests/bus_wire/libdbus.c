/* Reads messages, each after its length in four bytes, and prints what libdbus finds in each on a line. */
#include <dbus/dbus.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void hex(const char *text)
{
    putchar('"');
    for (; *text; text++)
        printf("%02x", (unsigned char)*text);
    putchar('"');
}

static void field(const char *name, const char *text)
{
    if (text != NULL) {
        printf(" %s=", name);
        hex(text);
    }
}

static void value(DBusMessageIter *iter)
{
    int type = dbus_message_iter_get_arg_type(iter);
    DBusBasicValue basic;
    DBusMessageIter inside;
    char *signature;
    switch (type) {
    case DBUS_TYPE_STRING:
    case DBUS_TYPE_OBJECT_PATH:
    case DBUS_TYPE_SIGNATURE:
        dbus_message_iter_get_basic(iter, &basic);
        printf(" %c:", type);
        hex(basic.str);
        break;
    case DBUS_TYPE_BYTE:
        dbus_message_iter_get_basic(iter, &basic);
        printf(" y:%u", basic.byt);
        break;
    case DBUS_TYPE_BOOLEAN:
        dbus_message_iter_get_basic(iter, &basic);
        printf(" b:%u", basic.bool_val ? 1 : 0);
        break;
    case DBUS_TYPE_INT16:
        dbus_message_iter_get_basic(iter, &basic);
        printf(" n:%d", basic.i16);
        break;
    case DBUS_TYPE_UINT16:
        dbus_message_iter_get_basic(iter, &basic);
        printf(" q:%u", basic.u16);
        break;
    case DBUS_TYPE_INT32:
        dbus_message_iter_get_basic(iter, &basic);
        printf(" i:%d", basic.i32);
        break;
    case DBUS_TYPE_UINT32:
        dbus_message_iter_get_basic(iter, &basic);
        printf(" u:%u", basic.u32);
        break;
    case DBUS_TYPE_INT64:
        dbus_message_iter_get_basic(iter, &basic);
        printf(" x:%" PRId64, (int64_t)basic.i64);
        break;
    case DBUS_TYPE_UINT64:
        dbus_message_iter_get_basic(iter, &basic);
        printf(" t:%" PRIu64, (uint64_t)basic.u64);
        break;
    case DBUS_TYPE_DOUBLE:
        dbus_message_iter_get_basic(iter, &basic);
        printf(" d:%016" PRIx64, (uint64_t)basic.u64);
        break;
    case DBUS_TYPE_ARRAY:
        printf(" [");
        dbus_message_iter_recurse(iter, &inside);
        for (; dbus_message_iter_get_arg_type(&inside) != DBUS_TYPE_INVALID; dbus_message_iter_next(&inside))
            value(&inside);
        printf(" ]");
        break;
    case DBUS_TYPE_STRUCT:
    case DBUS_TYPE_DICT_ENTRY:
        printf(" (");
        dbus_message_iter_recurse(iter, &inside);
        for (; dbus_message_iter_get_arg_type(&inside) != DBUS_TYPE_INVALID; dbus_message_iter_next(&inside))
            value(&inside);
        printf(" )");
        break;
    case DBUS_TYPE_VARIANT:
        dbus_message_iter_recurse(iter, &inside);
        signature = dbus_message_iter_get_signature(&inside);
        printf(" <%s", signature);
        dbus_free(signature);
        value(&inside);
        printf(" >");
        break;
    default:
        /* Descriptors cannot come in a file, so libdbus has none to give. */
        printf(" %c", type);
    }
}

int main(void)
{
    uint32_t length;
    while (fread(&length, sizeof length, 1, stdin) == 1) {
        char *bytes = malloc(length);
        DBusError error = DBUS_ERROR_INIT;
        if (fread(bytes, 1, length, stdin) != length)
            return 1;
        DBusMessage *message = dbus_message_demarshal(bytes, (int)length, &error);
        free(bytes);
        if (message == NULL) {
            printf("refused\n");
            dbus_error_free(&error);
            continue;
        }
        printf("%d %u %u flags=%d%d%d", dbus_message_get_type(message), dbus_message_get_serial(message),
               dbus_message_get_reply_serial(message), dbus_message_get_no_reply(message) ? 1 : 0,
               dbus_message_get_auto_start(message) ? 0 : 1,
               dbus_message_get_allow_interactive_authorization(message) ? 1 : 0);
        field("path", dbus_message_get_path(message));
        field("interface", dbus_message_get_interface(message));
        field("member", dbus_message_get_member(message));
        field("error", dbus_message_get_error_name(message));
        field("destination", dbus_message_get_destination(message));
        field("sender", dbus_message_get_sender(message));
        field("signature", dbus_message_get_signature(message));
        DBusMessageIter iter;
        if (dbus_message_iter_init(message, &iter))
            for (; dbus_message_iter_get_arg_type(&iter) != DBUS_TYPE_INVALID; dbus_message_iter_next(&iter))
                value(&iter);
        printf("\n");
        dbus_message_unref(message);
    }
    return 0;
}
